-- The time in a subquery: the index needs one value.
select (select count(*) from holdfast.request where next_at < (select :now) and deadline < (select :now)),
       (select count(*) from holdfast.request where late > 0 and accepted_at is null and state = 'failed'),
       (select deadline from holdfast.request where next_at is not null order by next_at, id limit 1)
