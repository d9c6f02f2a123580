-- What the history says last of messages since they died. All at the same instant: an end rather than an archive.
-- `since`, the first of the deaths, is for the index.
select distinct on (h.id, h.queue) h.id, h.queue, h.outcome
  from unnest(:ids::uuid[], :queues::text[], :times::timestamptz[]) u (id, queue, died_at)
  join holdfast.history h on h.id = u.id and h.queue = u.queue and h.ended_at >= u.died_at
 where h.ended_at >= :since::timestamptz
 order by h.id, h.queue, h.ended_at desc, h.outcome = 'archived'
