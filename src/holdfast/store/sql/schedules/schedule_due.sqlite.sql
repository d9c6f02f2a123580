-- Schedules that are due, the oldest occurrence first, read until there are enough. Nothing is locked: the decisions about
-- them are stored only if they are unchanged. The state of the last message is looked up if it matters:
-- 1 waits, 2 has been started. Unrouted, parked and dead ones do not count.
select s.name, s.version, s.incarnation, s.zones, s.type, s.body, s.headers, s.stream, s.subject, s.queue, s.last_id, s.rule, s.misfire,
       s.overlap, s.cap, s.max_late, s.grace, s.next_key, s.last_key,
       case when s.overlap in ('skip', 'replace') then
       (select max(case when m.attempts > 0 or exists (select 1 from holdfast_lease l where l.seq = m.seq) then 2 else 1 end)
          from holdfast_message m where m.id = s.last_id and m.queue is not null and m.claimable_at < 9223372036854775807) end,
       s.next_at, :now
  from holdfast_schedule s
 where s.next_at <= :now and (s.origin = 'call' or s.name in (select value from json_each(:mine))) and (s.zones is null or :zoned)
 order by s.next_at, s.name limit :limit
