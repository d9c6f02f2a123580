-- Read what a command needs to know of a message. No row: it has ended in the meantime.
select id, queue, stream, position, head, errors from holdfast_message
 where seq = :seq
