-- One schedule, locked: concurrent changes wait.
select s.name, s.incarnation, s.origin, s.digest, s.rule, s.type, s.body, s.headers, s.stream, s.subject, s.queue, s.misfire, s.overlap,
       s.cap, s.version, s.max_late, s.grace, s.zones, s.next_key, s.next_at, s.last_key, s.last_at, s.last_id, s.fired, s.left_out,
       s.paused_at, s.paused_why, s.error, s.declared_at, s.created_at, s.changed_at, coalesce(:now::timestamptz, clock_timestamp()) from holdfast.schedule s where s.name = :name for update
