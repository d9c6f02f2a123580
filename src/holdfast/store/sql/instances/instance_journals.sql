-- The journals of the current executions of instances, each in its order.
select j.id, j.turn, j.part, j.body
  from holdfast.instance i join holdfast.journal j on j.id = i.id and j.execution = i.execution
 where i.id = any (:ids::text[])
 order by j.id, j.turn, j.part
