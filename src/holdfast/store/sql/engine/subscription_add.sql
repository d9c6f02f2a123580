insert into holdfast.subscription (pattern, queue, created_at) values (:pattern, :queue, :now) on conflict do nothing
