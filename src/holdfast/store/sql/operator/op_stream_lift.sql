-- The halt of a stream is lifted. Does nothing when it is not halted, or by something else than expected.
update holdfast.stream set halted_by = null, halted_at = null
 where queue = :queue and name = :stream and halted_by = coalesce(:by::text, halted_by)
returning open
