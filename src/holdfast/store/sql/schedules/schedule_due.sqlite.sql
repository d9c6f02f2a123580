-- Schedules that are due, the oldest occurrence first. So many, and so many bytes of bodies, but for one that is larger
-- alone. Nothing is locked: what is decided about them is stored only if they are as they were seen. What became of the
-- last message is looked up where it matters: 1 waits, 2 has been started. Unrouted, parked and dead ones do not count.
select s.name, s.incarnation, s.origin, s.digest, s.rule, s.type, s.body, s.headers, s.stream, s.subject, s.queue, s.misfire, s.overlap,
       s.cap, s.version, s.max_late, s.grace, s.zones, s.next_key, s.next_at, s.last_key, s.last_at, s.last_id, s.fired, s.left_out,
       s.paused_at, s.paused_why, s.error, s.declared_at, s.created_at, s.changed_at,
       (select max(case when m.attempts > 0 or exists (select 1 from holdfast_lease l where l.seq = m.seq) then 2 else 1 end)
          from holdfast_message m
         where s.overlap in ('skip', 'replace') and m.id = s.last_id and m.queue is not null
           and m.claimable_at < 9223372036854775807),
       :now
  from (select d.*, sum(length(cast(d.body as blob))) over (order by d.next_at, d.name) - length(cast(d.body as blob)) as before
          from (select s.* from holdfast_schedule s
                 where s.next_at <= :now
                   and (s.origin = 'call' or s.name in (select value from json_each(:mine))) and (s.zones is null or :zoned)
                 order by s.next_at, s.name limit :limit) d) s
 where s.before < :bytes order by s.next_at, s.name
