-- Whether any of these ids is that of a message that is pending, scheduled or dead, whatever its queue.
select 1 from json_each(:ids) x
 where exists (select 1 from holdfast_message t where t.id = x.value)
    or exists (select 1 from holdfast_scheduled s where s.id = x.value) or exists (select 1 from holdfast_dead d where d.id = x.value)
 limit 1
