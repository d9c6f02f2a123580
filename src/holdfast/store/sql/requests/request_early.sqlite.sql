select id, request, received_at, failed from holdfast_request_result
 where standing = 'early' and request in (select value from json_each(:ids)) order by received_at, id
