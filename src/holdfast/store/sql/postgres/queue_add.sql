insert into holdfast.queue (name, created_at) values (:name, coalesce(:now::timestamptz, clock_timestamp())) on conflict do nothing
