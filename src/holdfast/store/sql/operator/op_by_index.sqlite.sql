-- The planner uses the index without help.
select null limit 0
