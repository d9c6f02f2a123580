-- Bodies of events that are sealed with another key than the one that seals now, or with `plain` not at all.
select stream, version, id, type, body from holdfast_event
 where (stream, version) > (:a, :b) and substr(body, 1, length(:mark)) <> :mark
   and (:plain or substr(body, 1, length(:sealed)) = :sealed)
 order by stream, version limit :limit
