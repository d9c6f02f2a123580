-- The database's time.
select :now
