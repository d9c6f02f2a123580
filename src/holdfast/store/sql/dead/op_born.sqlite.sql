-- Messages that are dead letters from the start: no worker ever had them.
insert into holdfast_dead (id, queue, seq, type, stream, subject, dedupe, status, epoch, attempts, failures, vanished,
                           refunds, redrives, reason, created_at, died_at, fingerprint, errors, headers, body)
select json_extract(value, '$.id'), json_extract(value, '$.queue'), 0, json_extract(value, '$.type'),
       json_extract(value, '$.stream'), json_extract(value, '$.subject'), json_extract(value, '$.dedupe'), 32769, 1, 0, 0, 0, 0, 0,
       json_extract(value, '$.reason'), json_extract(value, '$.at'), json_extract(value, '$.at'),
       json_extract(value, '$.fingerprint'), json_extract(value, '$.errors'), json_extract(value, '$.headers'),
       json_extract(value, '$.body')
  from json_each(:letters) where true
    on conflict (id, queue, seq) do nothing
returning id
