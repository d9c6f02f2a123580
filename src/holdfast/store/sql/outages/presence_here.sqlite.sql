-- Record that a worker of these queues is running now.
insert into holdfast_presence (queue, worked_at)
select distinct value, :now from json_each(:queues) where true
    on conflict (queue) do update set worked_at = max(worked_at, excluded.worked_at)
