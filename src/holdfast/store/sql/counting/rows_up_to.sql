-- How many messages are stored, counted up to a limit.
select count(*) from (select 1 from holdfast.message limit :cap::int) x
