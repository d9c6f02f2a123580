-- Whose turn it is to do something for all. No row: somebody else's, and not long ago.
insert into holdfast.turn as t (name, next_at) values (:name, :until::timestamptz)
    on conflict (name) do update set next_at = excluded.next_at
     where t.next_at <= :now returning name
