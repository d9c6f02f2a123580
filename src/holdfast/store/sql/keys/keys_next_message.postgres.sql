-- Bodies of pending messages that are sealed with another key than the one that seals now, or with `plain` not at all. Rows
-- that are locked are skipped: a rotation makes no one wait.
select seq, id, type, body from holdfast.message
 where seq > :a::bigint and left(body, length(:mark)) <> :mark
   and (:plain::boolean or left(body, length(:sealed)) = :sealed)
 order by seq limit :limit::int for update skip locked
