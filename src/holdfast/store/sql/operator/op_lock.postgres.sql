-- Lock a message and read what a command needs to know of it. No row: it has ended in the meantime.
select id, queue, stream, position, head, errors from holdfast.message
 where seq = :seq for update
