-- The other messages that wait in the stream of an instance, in its order.
select id, type, body, position, created_at from holdfast.message
 where queue = :queue and stream = :id and seq <> :seq order by position limit :count
