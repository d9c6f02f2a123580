-- When these queues last had a worker that is now gone.
select queue, worked_at from holdfast_presence where queue in (select value from json_each(:queues)) order by queue
