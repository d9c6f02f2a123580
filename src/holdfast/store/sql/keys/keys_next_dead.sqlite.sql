-- Bodies of dead letters that are sealed with another key than the one that seals now, or with `plain` not at all.
select id, queue, seq, id, type, body from holdfast_dead
 where (id, queue, seq) > (:a, :b, :c) and substr(body, 1, length(:mark)) <> :mark
   and (:plain or substr(body, 1, length(:sealed)) = :sealed)
 order by id, queue, seq limit :limit
