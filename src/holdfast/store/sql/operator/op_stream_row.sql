-- The halt of a stream; no row: there is no such stream.
select open, halted_by, halted_at from holdfast.stream where queue = :queue and name = :stream
