insert into holdfast_queue (name, created_at) values (:name, :now) on conflict do nothing
