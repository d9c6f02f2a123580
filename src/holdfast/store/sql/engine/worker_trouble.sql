-- What a worker had with its database, the last of it in words.
update holdfast.worker set trouble = :story, trouble_at = :now,
       timeouts = timeouts + :timeouts::int, restarts = restarts + :restarts::int where id = :worker
