-- Everything that migrations made belongs to this role from now on. Functions for producers run with its rights, so it
-- should be neither a superuser nor a role with rights elsewhere. It runs `holdfast migrate` from now on.
do $$
declare v_what text;
begin
    foreach v_what in array array(
        select 'schema ' || n.nspname from pg_namespace n where n.nspname = :space
         union all
        select 'table ' || c.oid::regclass::text from pg_class c
         where c.relnamespace = to_regnamespace(:space) and c.relkind in ('r', 'v') and c.relname = any (:tables::text[])
         union all
        select 'sequence holdfast.position'
         union all
        select 'type holdfast.draft'
         union all
        select 'function ' || unnest(v.made) from holdfast.schema_version v)
    loop
        execute 'alter ' || v_what || ' owner to ' || :owner;
    end loop;
end
$$
