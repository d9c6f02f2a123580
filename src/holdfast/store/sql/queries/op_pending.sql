-- The pending deliveries of one message: the rows that an operator's command is about.
select seq, queue, type, created_at, due_at from holdfast.pending
 where id = :id::uuid and (:queue::text is null or queue = :queue) and (:number::bigint is null or seq = :number)
 order by queue, seq
