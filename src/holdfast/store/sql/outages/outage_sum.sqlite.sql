-- The messages caught up since a moment: they fell due before a worker was back and began after that, or began late.
-- How many, how late, since when the oldest was due, and when the last of them ended.
select count(*), avg(h.started_at - h.due_at) / 1000000.0, max(h.started_at - h.due_at) / 1000000.0, min(h.due_at),
       max(h.ended_at)
  from holdfast_history h
 where h.ended_at >= :since and h.ended_at <= :until and h.outcome = 'done' and h.started_at > h.due_at
   and ((h.due_at < :back_at and h.started_at >= :back_at)
        or h.started_at - h.due_at >= :late * 1000000)
