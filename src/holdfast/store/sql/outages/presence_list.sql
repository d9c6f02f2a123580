-- When each queue last had a worker, of those that are gone.
select queue, worked_at from holdfast.presence
