select :now, (select next_at from holdfast.request where next_at is not null order by next_at, id limit 1)
