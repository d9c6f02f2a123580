-- Bodies of events that are sealed with another key than the one that seals now, or with `plain` not at all. Rows
-- that are locked are skipped: a rotation makes no one wait.
select stream, version, id, type, body from holdfast.event
 where (stream, version) > (:a, :b::bigint) and left(body, length(:mark)) <> :mark
   and (:plain::boolean or left(body, length(:sealed)) = :sealed)
 order by stream, version limit :limit::int for update skip locked
