-- Every destination and inbox that a worker has had.
select queue, kind, transport, address, last_at, seen_at from holdfast.endpoint
 where :queue::text is null or queue = :queue::text order by kind, queue limit :limit::int
