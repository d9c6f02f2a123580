-- The request that must be looked at first is looked at later. It is found by SQL alone: its row may be unreadable.
update holdfast.request set next_at = :at::timestamptz
 where id in (select id from holdfast.request where next_at < (select :now) order by next_at, id limit 1) and next_at < (select :now)
returning id
