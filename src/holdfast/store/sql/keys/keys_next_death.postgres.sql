-- Bodies with which messages died before they were edited, if sealed with another key than the one that seals now, or
-- with `plain` not at all. Rows that are locked are skipped: a rotation makes no one wait.
select id, queue, died_at, seq, id, type, body from holdfast.death
 where (id, queue, died_at, seq) > (:a::uuid, :b, :c::timestamptz, :d::bigint) and left(body, length(:mark)) <> :mark
   and (:plain::boolean or left(body, length(:sealed)) = :sealed)
 order by id, queue, died_at, seq limit :limit::int for update skip locked
