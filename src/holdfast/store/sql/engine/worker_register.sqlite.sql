-- A worker introduces itself.
insert into holdfast_worker (name, started_at, seen_at, queues) values (:name, :now, :now, :queues) returning id
