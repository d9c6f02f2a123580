-- The state of a message, before anything is locked. No row: it has ended.
select queue, stream, position from holdfast.message where seq = :seq
