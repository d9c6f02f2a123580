-- Which of these dead letters are pending again: the same message, by id and time.
select d.id, d.queue, d.seq from holdfast.dead d
  join holdfast.message m on m.id = d.id and m.queue = d.queue
   and coalesce(m.due_at, m.created_at) = coalesce(d.due_at, d.created_at)
 where (d.id, d.queue, d.seq) in (select * from unnest(:ids::uuid[], :queues::text[], :numbers::bigint[]))
