update holdfast.worker set stopping = true where id = :worker
