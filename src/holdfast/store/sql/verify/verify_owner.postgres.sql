-- Whether the owners of our functions are superusers, and which functions PUBLIC may call.
select bool_or(r.rolsuper and p.prosecdef), coalesce(array_agg(p.proname::text order by p.proname) filter (
           where exists (select 1 from aclexplode(coalesce(p.proacl, acldefault('f'::"char", p.proowner))) a
                          where a.grantee = 0::oid)), '{}'::text[])
  from holdfast.schema_version v
 cross join pg_catalog.unnest(v.made) u (signature)
  join pg_catalog.pg_proc p on p.oid = to_regprocedure(u.signature)::oid
  join pg_catalog.pg_roles r on r.oid = p.proowner
