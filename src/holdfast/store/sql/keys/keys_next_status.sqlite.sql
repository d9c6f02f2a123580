-- The status of instances that is sealed with another key than the one that seals now, or with `plain` not at all.
select id, 'status/' || id, 'holdfast.text', status from holdfast_instance
 where id > :a and status is not null and substr(status, 1, length(:mark)) <> :mark
   and (:plain or substr(status, 1, length(:sealed)) = :sealed)
 order by id limit :limit
