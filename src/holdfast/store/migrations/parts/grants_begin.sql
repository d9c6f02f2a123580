do $$
begin
    if to_regclass('holdfast.schema_version') is null then
        raise exception 'holdfast: nothing was granted: there are no tables of Holdfast here' using hint = 'Run `holdfast migrate` first.';
    end if;
end
$$
