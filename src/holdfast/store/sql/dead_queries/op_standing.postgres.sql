-- Where messages are: pending, dead since a moment, or neither.
select u.id, u.queue,
       exists (select 1 from holdfast.pending m where m.id = u.id and m.queue = u.queue),
       exists (select 1 from holdfast.dead d where d.id = u.id and d.queue = u.queue and d.died_at >= :since::timestamptz)
  from unnest(:ids::uuid[], :queues::text[]) u (id, queue)
