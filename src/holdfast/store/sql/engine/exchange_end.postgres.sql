-- Wait until the exchange that this worker has on its way, if any, has ended.
select pg_advisory_xact_lock(hashtext('holdfast.exchange'), :worker::int)
