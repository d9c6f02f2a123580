-- The fields of a message that a settlement other than done needs.
select errors, position, id, queue, stream from holdfast_message where seq = :seq
