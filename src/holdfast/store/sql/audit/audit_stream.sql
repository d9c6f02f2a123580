-- What an operator may change about a stream.
select open, halted_by, halted_at from holdfast.stream where queue = :queue and name = :stream
