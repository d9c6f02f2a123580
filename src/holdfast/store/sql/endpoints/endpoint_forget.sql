-- Forget a destination or an inbox whose queue was removed.
delete from holdfast.endpoint where queue = :queue::text
