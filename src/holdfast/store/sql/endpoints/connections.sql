-- The state of the workers' connections, by queue and worker; those of removed workers are not shown.
select c.queue, c.worker, w.name, c.state, c.since, c.why, c.tries, c.last_at, c.seen_at, w.seen_at
  from holdfast.connection c join holdfast.worker w on w.id = c.worker
 where :queue::text is null or c.queue = :queue::text order by c.queue, w.name, c.worker limit :limit::int
