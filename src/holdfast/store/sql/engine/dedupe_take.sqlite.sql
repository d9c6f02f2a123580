-- Take the dedupe keys of new messages; those taken before stay with the first. Answers the keys just taken.
insert into holdfast_dedupe (scope, key, id)
select json_extract(value, '$.type'), json_extract(value, '$.dedupe'), json_extract(value, '$.id')
  from json_each(:messages) where json_extract(value, '$.dedupe') is not null
    on conflict do nothing
returning scope, key
