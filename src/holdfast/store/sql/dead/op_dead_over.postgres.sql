-- Which of these messages have ended in their queue, by their last row in the history: since they died, or as done. Of
-- rows at the same instant an end counts more than an archive, which can be restored. It is the same message if id and
-- time are the same. All are looked for in one pass over the history.
select x.n - 1
  from (select distinct on (u.n) u.n, u.died_at, h.ended_at, h.outcome
          from unnest(:ids::uuid[], :queues::text[], :dues::timestamptz[], :times::timestamptz[])
               with ordinality u (id, queue, due_at, died_at, n)
          join holdfast.history h on h.id = u.id and h.queue = u.queue and h.due_at = u.due_at
         order by u.n, h.ended_at desc, h.outcome = 'archived') x
 where x.outcome <> 'archived' and (x.ended_at >= x.died_at or x.outcome = 'done')
