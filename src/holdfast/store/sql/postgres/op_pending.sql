-- The pending deliveries of one message: which rows an operator's order is about.
select seq, queue from holdfast.message
 where id = :id::uuid and (:queue::text is null or queue = :queue) order by queue
