-- An operator halts a stream. Does nothing when it is halted already.
update holdfast.stream set halted_by = :by, halted_at = :now
 where queue = :queue and name = :stream and halted_by is null
returning open
