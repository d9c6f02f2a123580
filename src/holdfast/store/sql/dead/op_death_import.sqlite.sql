-- Earlier deaths of dead letters that come from a file; a later one has the body that was edited.
insert into holdfast_death (id, queue, died_at, seq, type, reason, last_reason, fingerprint, worker, error, body)
select json_extract(value, '$.id'), json_extract(value, '$.queue'), json_extract(value, '$.died_at'),
       json_extract(value, '$.seq'),
       json_extract(value, '$.type'), json_extract(value, '$.reason'), json_extract(value, '$.last_reason'),
       json_extract(value, '$.fingerprint'), json_extract(value, '$.worker'), json_extract(value, '$.error'),
       json_extract(value, '$.body')
  from json_each(:deaths) where true
    on conflict (id, queue, died_at, seq) do update set body = coalesce(holdfast_death.body, excluded.body)
