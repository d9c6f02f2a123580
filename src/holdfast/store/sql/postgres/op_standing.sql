-- Where messages are: pending, dead (and when they died), or neither.
select u.id, u.queue,
       exists (select 1 from holdfast.message m where m.id = u.id and m.queue = u.queue),
       (select d.died_at from holdfast.dead d where d.id = u.id and d.queue = u.queue)
  from unnest(:ids::uuid[], :queues::text[]) u (id, queue)
