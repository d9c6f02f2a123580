-- Where a message stands. No row: it has ended.
select queue, stream, position from holdfast_message where seq = :seq
