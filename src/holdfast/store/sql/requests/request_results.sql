select id, received_at, standing, failed, body, source from holdfast.request_result
 where request = :id::uuid order by received_at, id limit :count
