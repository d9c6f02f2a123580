-- Bodies of requests that are sealed with another key than the one that seals now, or with `plain` not at all.
select id, id, 'holdfast/request', body from holdfast_request
 where id > :a and substr(body, 1, length(:mark)) <> :mark
   and (:plain or substr(body, 1, length(:sealed)) = :sealed)
 order by id limit :limit
