-- What has held back vacuum the longest: open transactions of this database, prepared ones, and replication slots
-- (it is not known since when). Without the rights to see a session, its query and state stay unknown.
select * from (
    select 'transaction', a.pid::text, coalesce(nullif(a.application_name, ''), 'unknown'), coalesce(a.state, 'unknown'),
           extract(epoch from clock_timestamp() - a.xact_start)::float8
      from pg_stat_activity a
     where a.datname = current_database() and a.backend_xmin is not null and a.pid <> pg_backend_pid()
     union all
    select 'prepared', p.gid, p.owner::text, 'prepared', extract(epoch from clock_timestamp() - p.prepared)::float8
      from pg_prepared_xacts p where p.database = current_database()
     union all
    select 'slot', s.slot_name::text, s.plugin::text, case when s.active then 'active' else 'inactive' end, null
      from pg_replication_slots s
     where (s.datoid is null or s.datoid = (select d.oid from pg_database d where d.datname = current_database()))
       and greatest(age(s.xmin), age(s.catalog_xmin)) > :transactions::int) x (kind, name, owner, state, seconds)
 order by x.seconds desc nulls last, x.name limit :limit::int
