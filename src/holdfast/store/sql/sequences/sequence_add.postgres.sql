-- A sequence has its row from the start.
select null::int limit 0
