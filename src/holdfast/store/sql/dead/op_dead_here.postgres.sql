-- Which of these messages are pending or dead here. It is the same message if id and time are the same.
select u.n - 1
  from unnest(:ids::uuid[], :queues::text[], :dues::timestamptz[]) with ordinality u (id, queue, due_at, n)
 where exists (select 1 from holdfast.pending m where m.id = u.id and m.queue = u.queue
                  and coalesce(m.due_at, m.created_at) = u.due_at)
    or exists (select 1 from holdfast.dead d where d.id = u.id and d.queue = u.queue
                  and coalesce(d.due_at, d.created_at) = u.due_at)
