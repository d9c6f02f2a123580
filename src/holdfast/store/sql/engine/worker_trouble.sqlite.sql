-- What a worker had with its database, the last of it in words.
update holdfast_worker set trouble = :story, trouble_at = :now,
       timeouts = timeouts + :timeouts, restarts = restarts + :restarts where id = :worker
