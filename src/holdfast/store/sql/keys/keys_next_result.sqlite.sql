-- The result of instances that is sealed with another key than the one that seals now, or with `plain` not at all.
select id, 'result/' || id, 'holdfast.text', result from holdfast_instance
 where id > :a and result is not null and substr(result, 1, length(:mark)) <> :mark
   and (:plain or substr(result, 1, length(:sealed)) = :sealed)
 order by id limit :limit
