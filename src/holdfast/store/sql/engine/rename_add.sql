-- The first to say that a handler was renamed is believed.
insert into holdfast.rename (old, new, created_at) values (:old, :new, :now) on conflict (old) do nothing
