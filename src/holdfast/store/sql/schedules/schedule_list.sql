-- Schedules in the order of their names, after one.
select s.name, s.incarnation, s.origin, s.digest, s.rule, s.type, s.body, s.headers, s.stream, s.subject, s.queue, s.misfire, s.overlap,
       s.cap, s.version, s.max_late, s.grace, s.zones, s.next_key, s.next_at, s.last_key, s.last_at, s.last_id, s.fired, s.left_out,
       s.paused_at, s.paused_why, s.error, s.declared_at, s.created_at, s.changed_at, :now from holdfast.schedule s
 where s.name > :after and s.name >= :first and s.name < :last
   and (:state = '' or (:state = 'paused' and s.paused_at is not null) or (:state = 'failed' and s.error is not null)
        or (:state = 'late' and s.next_at < :late) or (:state = 'code' and s.origin = 'code'))
 order by s.name limit :limit::int
