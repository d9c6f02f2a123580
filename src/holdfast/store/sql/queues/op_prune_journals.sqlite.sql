-- The journals of instances that are gone.
delete from holdfast_journal where id in (select i.value from json_each(:ids) i)
