-- Wait until this worker's exchange in flight, if any, has ended.
select pg_advisory_xact_lock(hashtext('holdfast.exchange'), :worker::int)
