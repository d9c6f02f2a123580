-- The stream of an instance is halted, also if nothing was ever in it.
insert into holdfast.stream as s (queue, name, open, halted_by, halted_at) values (:queue, :id, 0, :by::text, :now)
    on conflict (queue, name) do update
   set halted_by = coalesce(s.halted_by, excluded.halted_by), halted_at = coalesce(s.halted_at, excluded.halted_at)
