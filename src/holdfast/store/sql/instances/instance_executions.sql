-- The executions of an instance whose journal is stored.
select distinct execution from holdfast.journal where id = :id order by execution
