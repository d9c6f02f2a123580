-- The queue of a destination or an inbox was removed.
delete from holdfast.endpoint where queue = :queue::text
