-- When each queue last had a worker that is now gone.
select queue, worked_at from holdfast.presence
