-- The pending deliveries of one message: which rows an operator's order is about.
select seq, queue from holdfast_message where id = :id and (:queue is null or queue = :queue) order by queue
