-- Streams that are halted or whose head cannot be claimed now, with the head of each; those with most
-- behind the head come first. They are found through the heads that cannot be claimed: of each queue the next heads
-- are read, up to a limit.
with moment as materialized (select coalesce(:now::timestamptz, clock_timestamp()) as now),
found as materialized (
    select h.queue, h.stream from moment n cross join pg_catalog.unnest(:queues::text[]) q (name)
     cross join lateral (select m.queue, m.stream from holdfast.message m
             where m.queue = q.name and m.head and m.vanished = 0 and m.claimable_at > n.now
             order by m.claimable_at limit :cap::int) h where h.stream is not null
     union
    select m.queue, m.stream from holdfast.message m where m.head and m.vanished > 0 and m.stream is not null
     union
    select m.queue, m.stream from moment n cross join holdfast.lease l join holdfast.message m on m.seq = l.seq
     where l.until < n.now and m.stream is not null
     union
    select s.queue, s.name from holdfast.stream s where s.halted_by is not null)
select x.* from (
    select s.queue, s.name, s.open, s.halted_by, s.halted_at, h.id, h.type,
           case when h.seq is null then null
                when l.until >= n.now then 'leased' when h.claimable_at = 'infinity' then 'parked'
                when h.vanished > 0 or l.seq is not null then 'suspect' when h.claimable_at <= n.now then 'ready'
                when h.failures > 0 then 'retrying' else 'scheduled' end as state,
           nullif(h.claimable_at, 'infinity'), h.attempts, h.failures, h.vanished, h.status, h.reason, h.created_at,
           h.errors -> -1 ->> 'text'::text, (h.errors -> -1 ->> 'at'::text),
           coalesce(w.name, 'worker ' || l.worker::text), l.until,
           (select m.created_at from holdfast.message m where m.queue = s.queue and m.stream = s.name
               and m.position is not null order by m.position desc limit 1)
      from moment n cross join found f join holdfast.stream s on s.queue = f.queue and s.name = f.stream
      left join holdfast.message h on h.queue = s.queue and h.stream = s.name and h.head and h.position is not null
      left join holdfast.lease l on l.seq = h.seq left join holdfast.worker w on w.id = l.worker
     where s.open > 0 or s.halted_by is not null) x
 where x.halted_by is not null or x.state in ('parked', 'suspect', 'retrying', 'scheduled')
 order by x.open desc, x.queue, x.name limit :limit::int
