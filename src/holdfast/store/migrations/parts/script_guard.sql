-- Somebody runs this script later: the database may stand somewhere else than was thought.
do $$
declare
    v_row jsonb; v_version int; v_number int;
begin
    if to_regclass('holdfast.schema_version') is not null then
        execute 'select to_jsonb(v) from holdfast.schema_version v' into v_row;
    end if;
    if v_row is not null and not v_row ? 'functions' then
        raise exception 'holdfast: nothing was migrated: the schema has a table schema_version that is not Holdfast''s';
    end if;
    v_version := coalesce((v_row ->> 'version')::int, 0);
    v_number := coalesce((v_row ->> 'number')::int, 0);
    if v_version <> :since then
        raise exception 'holdfast: nothing was migrated: the database is at schema version %, and this script is for version %',
            v_version, :since;
    end if;
    if v_number > :number or (v_number = :number and v_row ->> 'functions' <> :digest) then
        raise exception 'holdfast: nothing was migrated: the database has functions number %, and this script has number %',
            v_number, :number;
    end if;
end
$$
