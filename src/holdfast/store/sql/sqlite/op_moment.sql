-- The time.
select :now
