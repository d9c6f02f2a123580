-- A worker introduces itself.
insert into holdfast.worker (name, started_at, seen_at, queues) values (:name, coalesce(:now::timestamptz, clock_timestamp()), coalesce(:now::timestamptz, clock_timestamp()), :queues::text[]) returning id
