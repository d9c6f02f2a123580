-- What a settlement that is not simply done needs to know of the message.
select errors, position, id, queue, stream from holdfast_message where seq = :seq
