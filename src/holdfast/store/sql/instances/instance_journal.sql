-- The journal of one execution, in its order.
select turn, part, body from holdfast.journal where id = :id and execution = :execution order by turn, part
