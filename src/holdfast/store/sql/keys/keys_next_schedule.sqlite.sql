-- Bodies of schedules that are sealed with another key than the one that seals now, or with `plain` not at all.
select name, incarnation, type, body from holdfast_schedule
 where name > :a and substr(body, 1, length(:mark)) <> :mark
   and (:plain or substr(body, 1, length(:sealed)) = :sealed)
 order by name limit :limit
