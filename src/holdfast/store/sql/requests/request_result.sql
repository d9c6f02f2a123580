select id, received_at, standing, failed, body, source from holdfast.request_result where id = :id::uuid
