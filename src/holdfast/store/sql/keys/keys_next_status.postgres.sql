-- The status of instances that is sealed with another key than the one that seals now, or with `plain` not at all. Rows
-- that are locked are skipped: a rotation makes no one wait.
select id, 'status/' || id, 'holdfast.text', status from holdfast.instance
 where id > :a and status is not null and left(status, length(:mark)) <> :mark
   and (:plain::boolean or left(status, length(:sealed)) = :sealed)
 order by id limit :limit::int for update skip locked
