-- The pending deliveries of one message: which rows an operator's order is about.
select seq, queue, type, created_at, due_at from holdfast_message
 where id = :id and (:queue is null or queue = :queue) and (:number is null or seq = :number) order by queue, seq
