select id, request, received_at, failed from holdfast.request_result
 where standing = 'early' and request = any (:ids::uuid[]) order by received_at, id
