-- The messages caught up since a moment: they fell due before a worker was back and began after that, or began late.
-- How many, how late, since when the oldest was due, and when the last of them ended.
select count(*), avg(extract(epoch from h.started_at - h.due_at))::float8,
       max(extract(epoch from h.started_at - h.due_at))::float8, min(h.due_at), max(h.ended_at)
  from holdfast.history h
 where h.ended_at >= :since::timestamptz and h.ended_at <= :until::timestamptz and h.outcome = 'done'
   and h.started_at > h.due_at
   and ((h.due_at < :back_at::timestamptz and h.started_at >= :back_at::timestamptz)
        or h.started_at - h.due_at >= make_interval(secs => :late::float8))
