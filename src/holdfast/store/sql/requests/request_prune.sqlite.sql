-- Requests that ended before a moment, a batch of them.
delete from holdfast_request where id in (
    select id from holdfast_request where ended_at < :before order by ended_at, id limit :limit) returning id
