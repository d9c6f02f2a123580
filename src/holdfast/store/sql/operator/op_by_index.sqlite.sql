-- The planner uses the index by itself.
select null limit 0
