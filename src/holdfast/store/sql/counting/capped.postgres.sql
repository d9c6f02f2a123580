-- What is pending in each of these queues, each state counted up to a limit through an index; since when the
-- oldest due one waits; and how many messages in retry had so many attempts that they may be poison.
with moment as materialized (select coalesce(:now::timestamptz, clock_timestamp()) as now)
select q.name, ready.count, later.retrying, later.scheduled, later.count, parked.count, suspect.count,
       stream.waiting, stream.count, oldest.at, later.loops
  from moment n cross join pg_catalog.unnest(:queues::text[]) q (name)
 cross join lateral (select count(*) from (select 1 from holdfast.message m
         where m.queue = q.name and m.head and m.vanished = 0 and m.claimable_at <= n.now limit :cap::int) x) ready
 cross join lateral (select count(*), count(*) filter (where x.failures > 0) as retrying,
               count(*) filter (where x.failures = 0) as scheduled,
               count(*) filter (where x.attempts >= :attempts::int and x.status & 32768 = 32768) as loops
          from (select m.failures, m.attempts, m.status from holdfast.message m
                 where m.queue = q.name and m.head and m.vanished = 0 and m.claimable_at > n.now
                   and m.claimable_at < 'infinity' limit :cap::int) x) later
 cross join lateral (select count(*) from (
        (select 1 from holdfast.message m
          where m.queue = q.name and m.head and m.vanished = 0 and m.claimable_at = 'infinity' limit :cap::int)
         union all
        (select 1 from holdfast.message m
          where m.queue = q.name and m.head and m.vanished > 0 and m.claimable_at = 'infinity' limit :cap::int)) x) parked
 cross join lateral (select count(*) from (select 1 from holdfast.message m
         where m.queue = q.name and m.head and m.vanished > 0 and m.claimable_at < 'infinity' limit :cap::int) x) suspect
 cross join lateral (select count(*), coalesce(sum(x.behind), 0) as waiting
          from (select greatest(s.open - (s.halted_by is null)::int, 0) as behind from holdfast.stream s
                 where s.queue = q.name limit :cap::int) x) stream
 cross join lateral (select min(coalesce(x.due_at, x.created_at)) as at
          from (select m.due_at, m.created_at from holdfast.message m
                 where m.queue = q.name and m.head and m.vanished = 0 and m.claimable_at <= n.now
                 order by m.claimable_at, m.seq limit 100) x) oldest
