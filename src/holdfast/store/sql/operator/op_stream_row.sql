-- What halts a stream, and whether there is such a stream at all.
select open, halted_by, halted_at from holdfast.stream where queue = :queue and name = :stream
