-- When these queues last had a worker, of those that are gone. Locked: workers that start together come one by one.
select queue, worked_at from holdfast.presence where queue = any (:queues::text[]) order by queue for update
