-- Bodies of dead letters that are sealed with another key than the one that seals now, or with `plain` not at all.
select id, queue, id, type, body from holdfast_dead
 where (id, queue) > (:a, :b) and substr(body, 1, length(:mark)) <> :mark
   and (:plain or substr(body, 1, length(:sealed)) = :sealed)
 order by id, queue limit :limit
