-- Messages that are dead letters from the start: no worker ever had them.
insert into holdfast.dead (id, queue, seq, type, stream, subject, dedupe, status, epoch, attempts, failures, vanished,
                           refunds, redrives, reason, created_at, died_at, fingerprint, errors, headers, body)
select x.id, x.queue, 0, x.type, x.stream, x.subject, x.dedupe, 32769, 1, 0, 0, 0, 0, 0, x.reason, x.at, x.at,
       x.fingerprint, x.errors, x.headers, x.body
  from json_to_recordset(:letters::json) as x (
       id uuid, queue text, type text, stream text, subject text, dedupe text, reason int, at timestamptz,
       fingerprint text, errors jsonb, headers text, body text)
    on conflict (id, queue, seq) do nothing
returning id
