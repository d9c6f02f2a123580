-- Store the state of a worker's connection; nothing for a worker that was removed.
insert into holdfast.connection as c (queue, worker, state, since, why, tries, last_at, seen_at)
select :queue::text, w.id, :state::text, :since::timestamptz, :why::text, :tries::int, :last_at::timestamptz, :now
  from holdfast.worker w where w.id = :worker::bigint
    on conflict (queue, worker) do update set state = excluded.state, since = excluded.since, why = excluded.why,
        tries = excluded.tries, last_at = coalesce(excluded.last_at, c.last_at), seen_at = excluded.seen_at
