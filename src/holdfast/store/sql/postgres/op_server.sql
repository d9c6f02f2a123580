-- What the server promises about a commit, and for how long the oldest open transaction holds back cleaning up.
select current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
       current_setting('full_page_writes'),
       (select extract(epoch from max(clock_timestamp() - a.xact_start))::float8 from pg_stat_activity a
         where a.datname = current_database() and a.backend_xmin is not null and a.pid <> pg_backend_pid())
