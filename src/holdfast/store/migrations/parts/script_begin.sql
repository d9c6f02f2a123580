-- The system's functions and types, and no others, until the script has ended.
do $$
begin
    perform pg_catalog.set_config('holdfast.path', pg_catalog.current_setting('search_path'), false),
            pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
end
$$
