-- A schedule is new or changed. One of that name keeps its incarnation, what it has fired, and a pause.
insert into holdfast.schedule as s (name, incarnation, origin, digest, rule, type, body, headers, stream, subject, queue,
       misfire, overlap, cap, max_late, grace, zones, next_key, next_at, declared_at, created_at, changed_at)
values (:name, :incarnation::uuid, :origin, :digest::text, :rule, :type, :body, :headers::text, :stream::text, :subject::text,
        :queue::text, :misfire, :overlap, :cap::int, :max_late::float8, :grace::float8, :zones::text, :next_key::text,
        :next_at::timestamptz, :declared_at::timestamptz, :now, :now)
    on conflict (name) do update
   set version = s.version + 1, origin = excluded.origin, digest = excluded.digest, rule = excluded.rule, type = excluded.type,
       body = excluded.body, headers = excluded.headers, stream = excluded.stream, subject = excluded.subject,
       queue = excluded.queue, misfire = excluded.misfire, overlap = excluded.overlap, cap = excluded.cap,
       max_late = excluded.max_late, grace = excluded.grace, zones = excluded.zones, next_key = excluded.next_key,
       next_at = case when s.paused_at is null then excluded.next_at end, error = null,
       declared_at = excluded.declared_at, changed_at = excluded.changed_at
