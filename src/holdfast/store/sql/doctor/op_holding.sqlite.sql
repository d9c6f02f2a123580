-- Nothing holds back cleaning up: deleted rows are free at once.
select null, null, null, null, null limit 0
