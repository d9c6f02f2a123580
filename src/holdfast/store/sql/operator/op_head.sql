-- The head of a stream. No row: it is halted, or nothing is in its order.
select seq from holdfast.message where queue = :queue and stream = :stream and head and position is not null
