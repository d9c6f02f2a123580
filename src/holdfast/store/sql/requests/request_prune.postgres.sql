-- Requests that ended before a moment, a batch of them.
delete from holdfast.request where id = any (array(
    select id from holdfast.request where ended_at < :before::timestamptz order by ended_at, id limit :limit::int)) returning id
