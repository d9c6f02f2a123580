-- Bodies of dead letters that are sealed with another key than the one that seals now, or with `plain` not at all. Rows
-- that are locked are skipped: a rotation makes no one wait.
select id, queue, seq, id, type, body from holdfast.dead
 where (id, queue, seq) > (:a::uuid, :b, :c::bigint) and left(body, length(:mark)) <> :mark
   and (:plain::boolean or left(body, length(:sealed)) = :sealed)
 order by id, queue, seq limit :limit::int for update skip locked
