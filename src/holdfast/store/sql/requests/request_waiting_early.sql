select distinct r.request from holdfast.request_result r join holdfast.request q on q.id = r.request
 where r.standing = 'early' and q.state = 'open' limit :count
