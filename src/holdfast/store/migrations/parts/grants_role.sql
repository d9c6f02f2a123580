do $$
begin
    if not exists (select from pg_catalog.pg_roles where rolname = :called) then
        create role :role nologin;
    end if;
end
$$
