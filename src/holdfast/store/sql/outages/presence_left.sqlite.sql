-- A worker leaves: its queues had one until now, or until it was last seen if it has died.
insert into holdfast_presence (queue, worked_at)
select q.value, case when :died then max(w.seen_at) else :now end
  from holdfast_worker w join json_each(w.queues) q where w.id = :worker group by q.value
    on conflict (queue) do update set worked_at = max(worked_at, excluded.worked_at)
