-- Whether a message came back in front of the one that was held as the first: a redrive into a halted stream. Asked
-- when the stream's row is held, in a statement of its own; one row means that the order must be begun anew.
select 1 from holdfast.message
 where queue = :queue and stream = :stream and position < :position limit 1
