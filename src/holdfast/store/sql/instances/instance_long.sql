-- How many instances that have not ended have a journal of so many events or bytes, and one of them.
select count(*), min(id) from holdfast.instance
 where ended_at is null and (entries >= :events::int or size >= :bytes::bigint)
