-- Record that a worker has it, and when a message last went through it there. Times only rise.
update holdfast.endpoint set seen_at = :now,
       last_at = case when last_at is null or last_at < :last_at::timestamptz then :last_at::timestamptz else last_at end
 where queue = :queue::text
