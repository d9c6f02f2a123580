-- Bodies with which messages died before they were edited, if sealed with another key than the one that seals now, or
-- with `plain` not at all.
select id, queue, died_at, seq, id, type, body from holdfast_death
 where (id, queue, died_at, seq) > (:a, :b, :c, :d) and substr(body, 1, length(:mark)) <> :mark
   and (:plain or substr(body, 1, length(:sealed)) = :sealed)
 order by id, queue, died_at, seq limit :limit
