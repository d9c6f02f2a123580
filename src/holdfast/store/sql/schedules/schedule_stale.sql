-- Schedules whose next time was computed with older zone data.
select s.name, s.version, s.incarnation, s.zones, s.type, s.body, s.headers, s.stream, s.subject, s.queue, s.last_id::text, s.rule, s.misfire,
       s.overlap, s.cap, s.max_late, s.grace, s.next_key, s.last_key,
       null, s.next_at, :now
  from holdfast.schedule s where s.zones < :zones::text and s.next_at is not null limit :limit::int
