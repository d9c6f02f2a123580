-- A transaction cannot be spoilt here: what the plan wrote is undone by its savepoint.
select null limit 0
