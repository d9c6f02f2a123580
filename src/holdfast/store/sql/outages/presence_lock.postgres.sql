-- When these queues last had a worker that is now gone. Locked, so workers that start together wait for each other.
select queue, worked_at from holdfast.presence where queue = any (:queues::text[]) order by queue for update
