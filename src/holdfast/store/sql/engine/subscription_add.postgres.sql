insert into holdfast.subscription (pattern, queue, created_at) values (:pattern, :queue, coalesce(:now::timestamptz, clock_timestamp())) on conflict do nothing
