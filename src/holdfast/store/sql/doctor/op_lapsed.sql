-- Leases that lapsed long ago and that nobody has ended.
select count(*), min(until) from holdfast.lease where until < :before::timestamptz
