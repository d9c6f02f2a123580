-- Bodies of scheduled messages that are sealed with another key than the one that seals now, or with `plain` not at all.
select seq, id, type, body from holdfast_scheduled
 where seq > :a and substr(body, 1, length(:mark)) <> :mark
   and (:plain or substr(body, 1, length(:sealed)) = :sealed)
 order by seq limit :limit
