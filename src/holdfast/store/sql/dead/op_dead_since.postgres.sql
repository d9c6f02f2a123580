-- The same as op_dead_over of a few messages, by what has ended since a moment.
select x.n - 1
  from (select distinct on (u.n) u.n, u.died_at, h.ended_at, h.outcome
          from unnest(:ids::uuid[], :queues::text[], :dues::timestamptz[], :times::timestamptz[])
               with ordinality u (id, queue, due_at, died_at, n)
          join holdfast.ended_since(:since::timestamptz) h on h.id = u.id and h.queue = u.queue and h.due_at = u.due_at
         order by u.n, h.ended_at desc, h.outcome = 'archived') x
 where x.outcome <> 'archived' and (x.ended_at >= x.died_at or x.outcome = 'done')
