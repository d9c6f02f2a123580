-- Take the dedupe keys of new messages; those taken before stay with the first. Answers the keys just taken. A key that
-- begins with U+001F names its scope itself.
insert into holdfast_dedupe (scope, key, id, kept)
select case when unicode(json_extract(value, '$.dedupe')) = 31 then '' else json_extract(value, '$.type') end,
       json_extract(value, '$.dedupe'), json_extract(value, '$.id'), json_extract(value, '$.kept')
  from json_each(:messages) where json_extract(value, '$.dedupe') is not null
    on conflict do nothing
returning scope, key
