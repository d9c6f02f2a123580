-- Bodies of schedules that are sealed with another key than the one that seals now, or with `plain` not at all. Rows
-- that are locked are skipped: a rotation makes no one wait.
select name, incarnation, type, body from holdfast.schedule
 where name > :a and left(body, length(:mark)) <> :mark
   and (:plain::boolean or left(body, length(:sealed)) = :sealed)
 order by name limit :limit::int for update skip locked
