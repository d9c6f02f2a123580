-- Register a worker.
insert into holdfast.worker (name, started_at, seen_at, queues) values (:name, :now, :now, :queues::text[]) returning id
