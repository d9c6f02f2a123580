-- The pending deliveries of one message: which rows an operator's order is about.
select seq, queue, type, created_at, due_at from holdfast.message
 where id = :id::uuid and (:queue::text is null or queue = :queue) and (:number::bigint is null or seq = :number)
 order by queue, seq
