-- Earlier deaths of dead letters that come from a file; a later one has the body that was edited.
insert into holdfast.death as t (id, queue, died_at, seq, type, reason, last_reason, fingerprint, worker, error, body)
select x.id, x.queue, x.died_at, x.seq, x.type, x.reason, x.last_reason, x.fingerprint, x.worker, x.error, x.body
  from json_to_recordset(:deaths::json) as x (
       id uuid, queue text, died_at timestamptz, seq bigint, type text, reason int, last_reason int, fingerprint text, worker
       text, error text, body text)
    on conflict (id, queue, died_at, seq) do update set body = coalesce(t.body, excluded.body)
