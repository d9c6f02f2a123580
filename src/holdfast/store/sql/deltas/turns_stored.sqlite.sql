-- How many instances the statement before has changed.
select changes()
