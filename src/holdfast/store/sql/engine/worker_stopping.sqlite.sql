update holdfast_worker set stopping = 1 where id = :worker
