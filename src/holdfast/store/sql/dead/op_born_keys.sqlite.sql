-- Take the dedupe keys of messages that are dead letters from the start. Answers the ids of those that were free.
insert into holdfast_dedupe (scope, key, id, kept)
select case when unicode(json_extract(value, '$.dedupe')) = 31 then '' else json_extract(value, '$.type') end,
       json_extract(value, '$.dedupe'), json_extract(value, '$.id'), json_extract(value, '$.kept')
  from json_each(:letters) where true
    on conflict do nothing
returning id
