-- The database's time.
select coalesce(:now::timestamptz, clock_timestamp())
