-- The functions that migrations made go before the new ones come: with other parameters an old one would stand beside the
-- new one of its name, and calls be ambiguous. Those of triggers are replaced instead: their triggers hang on them.
do $$
declare f record;
begin
    for f in select p.oid::regprocedure as name from pg_proc p
              where p.pronamespace = (select c.relnamespace from pg_class c where c.oid = 'holdfast.message'::regclass)
                and p.prorettype <> 'trigger'::regtype
                and p.oid::regprocedure::text = any ((select v.made || :former::text[] from holdfast.schema_version v)::text[])
    loop
        execute 'drop function ' || f.name;
    end loop;
end
$$
