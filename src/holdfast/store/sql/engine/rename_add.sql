-- Store a rename of a handler; an earlier one stays.
insert into holdfast.rename (old, new, created_at) values (:old, :new, :now) on conflict (old) do nothing
