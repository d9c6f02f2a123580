-- A transaction cannot be made to fail here: what the plan wrote is undone by its savepoint.
select null limit 0
