-- Foreign objects that a migration would overwrite or could not distinguish from its own: functions with a name of ours
-- that no migration made, and tables, indexes, sequences and types with a name that it needs.
select 'function ' || p.oid::regprocedure::text from pg_catalog.pg_proc p
 where p.pronamespace = to_regnamespace(:schema::text)::oid and p.proname = any (:functions::text[])
   and p.oid::regprocedure::text <> all (:made::text[])
 union all
select case c.relkind when 'S' then 'sequence ' when 'i' then 'index ' when 'v' then 'view ' when 'c' then 'type '
                      else 'table ' end || c.oid::regclass::text
  from pg_catalog.pg_class c where c.relnamespace = to_regnamespace(:schema::text)::oid and c.relname = any (:names::text[])
 union all
select 'type ' || t.oid::regtype::text from pg_catalog.pg_type t
 where t.typnamespace = to_regnamespace(:schema::text)::oid and t.typname = any (:names::text[]) and t.typrelid = 0::oid
 order by 1
