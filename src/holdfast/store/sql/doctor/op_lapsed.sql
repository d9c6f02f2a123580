-- Leases that expired long ago and that no worker has ended.
select count(*), min(until) from holdfast.lease where until < :before::timestamptz
