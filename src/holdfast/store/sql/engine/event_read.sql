-- The events of a stream after a version, in order.
select version, id, type, subject, created_at, headers, body from holdfast.event
 where stream = :stream and version > :after order by version limit :count
