-- Results from before a moment that never had a request, a batch of them.
delete from holdfast.request_result where id in (
    select x.id from holdfast.request_result x
     where x.standing = 'early' and x.received_at < :before::timestamptz
       and not exists (select 1 from holdfast.request q where q.id = x.request)
     limit :limit::int) returning 1
