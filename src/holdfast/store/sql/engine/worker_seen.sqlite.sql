update holdfast_worker set seen_at = :now where id = :worker
