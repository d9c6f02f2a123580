-- Nobody but the owner may call a function that was not granted to him. Functions were made anew, and what was granted on
-- them has gone; new tables were granted to nobody. So roles get again what `holdfast grants` gave them. A role is known by
-- what it may do with the tables: a worker deletes messages and leases, a producer inserts messages, a viewer reads them
-- together with dead letters, the history and the audit. Nothing is taken from a role here.
do $$
declare
    v_function text; v_role text; v_access text; v_right text;
begin
    for v_function in
        select p.oid::regprocedure::text from pg_proc p
         where p.pronamespace = (select c.relnamespace from pg_class c where c.oid = 'holdfast.message'::regclass)
           and p.oid::regprocedure::text = any ((select v.made from holdfast.schema_version v)::text[])
    loop
        execute 'revoke execute on function ' || v_function || ' from public';
    end loop;
    for v_role, v_access in
        with granted as (
            select distinct r.oid, r.rolname from pg_class c
             cross join lateral (
                   select a.grantee from aclexplode(c.relacl) a
                    union all
                   select a.grantee from pg_attribute t cross join lateral aclexplode(t.attacl) a where t.attrelid = c.oid) g
              join pg_roles r on r.oid = g.grantee
             where c.oid = 'holdfast.message'::regclass and r.oid <> c.relowner)
        select g.rolname, 'worker' from granted g
         where has_table_privilege(g.oid, 'holdfast.message', 'delete') and has_table_privilege(g.oid, 'holdfast.lease', 'delete')
         union all
        select g.rolname, 'producer' from granted g
         where has_column_privilege(g.oid, 'holdfast.message', 'type', 'insert')
           and has_column_privilege(g.oid, 'holdfast.message', 'body', 'insert')
           and not has_table_privilege(g.oid, 'holdfast.message', 'delete')
         union all
        select g.rolname, 'viewer' from granted g
         where has_table_privilege(g.oid, 'holdfast.message', 'select') and has_table_privilege(g.oid, 'holdfast.dead', 'select')
           and has_table_privilege(g.oid, 'holdfast.history', 'select') and has_table_privilege(g.oid, 'holdfast.audit', 'select')
           and not has_table_privilege(g.oid, 'holdfast.message', 'delete')
    loop
        foreach v_right in array case v_access when 'worker' then :worker::text[] when 'producer' then :producer::text[]
                                               else :viewer::text[] end
        loop
            execute format('grant %s to %I', v_right, v_role);
        end loop;
    end loop;
end
$$
