-- Take the turn to do something for all processes. No row: another process had it, not long ago.
insert into holdfast.turn as t (name, next_at) values (:name, :until::timestamptz)
    on conflict (name) do update set next_at = excluded.next_at
     where t.next_at <= :now returning name
