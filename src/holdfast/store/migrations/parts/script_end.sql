do $$
begin
    perform set_config('search_path', current_setting('holdfast.path'), false);
end
$$
