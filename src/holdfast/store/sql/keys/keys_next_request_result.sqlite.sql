-- Bodies of results of requests that are sealed with another key than the one that seals now, or with `plain` not at all.
select id, id, 'holdfast/request.result', body from holdfast_request_result
 where id > :a and substr(body, 1, length(:mark)) <> :mark
   and (:plain or substr(body, 1, length(:sealed)) = :sealed)
 order by id limit :limit
