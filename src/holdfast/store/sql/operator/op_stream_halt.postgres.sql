-- An operator halts a stream. Does nothing when it is halted already.
update holdfast.stream set halted_by = :by, halted_at = coalesce(:now::timestamptz, clock_timestamp())
 where queue = :queue and name = :stream and halted_by is null
returning open
