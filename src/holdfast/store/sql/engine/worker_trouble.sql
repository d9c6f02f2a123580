-- The trouble that a worker had with its database, with the last error.
update holdfast.worker set trouble = :story, trouble_at = :now,
       timeouts = timeouts + :timeouts::int, restarts = restarts + :restarts::int where id = :worker
