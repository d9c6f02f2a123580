-- The first message in the order of a stream, not locked. No row: the order is empty.
select seq from holdfast.message
 where queue = :queue and stream = :stream and position is not null order by position limit 1
