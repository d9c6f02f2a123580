-- Which functions are installed now. Others of these names were refused before.
update holdfast.schema_version
   set functions = :digest, number = :number, compatible_from = :compatible_from,
       made = array(select p.oid::regprocedure::text from pg_proc p
                     where p.pronamespace = (select c.relnamespace from pg_class c where c.oid = 'holdfast.message'::regclass)
                       and p.proname = any (:functions::text[]) order by 1)
