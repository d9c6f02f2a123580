-- Lock the first message in the order of a stream: its head, unless the stream is halted. While it is held nothing of
-- the stream is claimed or settled. No row: the order is empty.
select seq, position from holdfast.message
 where queue = :queue and stream = :stream and position is not null
 order by position limit 1 for update
