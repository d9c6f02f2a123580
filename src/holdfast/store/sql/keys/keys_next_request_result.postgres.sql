-- Bodies of results of requests that are sealed with another key than the one that seals now, or with `plain` not at
-- all. Rows that are locked are skipped: a rotation makes no one wait.
select id, id, 'holdfast/request.result', body from holdfast.request_result
 where id > :a::uuid and left(body, length(:mark)) <> :mark
   and (:plain::boolean or left(body, length(:sealed)) = :sealed)
 order by id limit :limit::int for update skip locked
