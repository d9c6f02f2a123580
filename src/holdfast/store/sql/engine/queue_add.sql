-- Register a queue, and whether it keeps the order of streams.
insert into holdfast.queue as q (name, created_at, ordered) values (:name, :now, :ordered)
    on conflict (name) do update set ordered = excluded.ordered where q.ordered <> excluded.ordered
