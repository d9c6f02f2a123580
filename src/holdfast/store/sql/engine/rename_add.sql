-- The first rename of a handler that is stored counts.
insert into holdfast.rename (old, new, created_at) values (:old, :new, :now) on conflict (old) do nothing
