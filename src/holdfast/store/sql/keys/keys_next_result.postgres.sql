-- The result of instances that is sealed with another key than the one that seals now, or with `plain` not at all. Rows
-- that are locked are skipped: a rotation makes no one wait.
select id, 'result/' || id, 'holdfast.text', result from holdfast.instance
 where id > :a and result is not null and left(result, length(:mark)) <> :mark
   and (:plain::boolean or left(result, length(:sealed)) = :sealed)
 order by id limit :limit::int for update skip locked
