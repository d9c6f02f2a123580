-- Dead letters come back as pending messages: same id and dedupe key, a higher epoch, counters at 0, progress flags
-- kept and Failed cleared. `position` is the old one for the head of a halted stream, -1 draws a new one, 0: out of
-- the order. Positions are drawn in the order given. `delays` says after how many seconds each may be claimed.
insert into holdfast.message (position, claimable_at, created_at, due_at, deadline, id, status, epoch, redrives, head,
                              queue, plain, type, stream, subject, dedupe, errors, headers, body, traceback)
select case when x.position = -1 then nextval('holdfast.position') else nullif(x.position, 0) end,
       coalesce(:now::timestamptz, clock_timestamp()) + x.delay * interval '1 second', x.created_at, x.due_at,
       x.deadline, x.id, x.status & ~32768, least(x.epoch, 2147483646) + 1, least(x.redrives, 2147483646) + 1, x.head, x.queue, null, x.type, x.stream, x.subject,
       x.dedupe, x.errors, x.headers, x.body, x.traceback
  from (select u.position as position, u.head as head, u.delay, d.created_at, d.due_at, d.deadline, d.id, d.status,
               d.epoch, d.redrives, d.queue, d.type, d.stream, d.subject, d.dedupe, d.errors, d.headers, d.body, d.traceback
          from unnest(:ids::uuid[], :queues::text[], :numbers::bigint[], :positions::bigint[], :heads::boolean[],
                      :delays::float8[])
               with ordinality u (id, queue, seq, position, head, delay, n)
          join holdfast.dead d on d.id = u.id and d.queue = u.queue and d.seq = u.seq order by u.n) x
returning seq
