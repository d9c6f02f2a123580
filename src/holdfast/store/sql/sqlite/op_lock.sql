-- Read what an order needs to know of a message. No row: it has ended meanwhile.
select id, queue, type, stream, position, head, errors, claimable_at = 9223372036854775807 from holdfast_message
 where seq = :seq
