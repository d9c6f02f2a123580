-- The request whose time comes first is postponed. It is found by SQL alone: its row may be unreadable.
update holdfast.request set next_at = :at::timestamptz
 where id in (select id from holdfast.request where next_at < (select :now) order by next_at, id limit 1) and next_at < (select :now)
returning id
