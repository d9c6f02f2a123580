-- The first message in the order of a stream: its head, unless the stream is halted. No row: the order is empty.
select seq, position from holdfast_message
 where queue = :queue and stream = :stream and position is not null
 order by position limit 1
