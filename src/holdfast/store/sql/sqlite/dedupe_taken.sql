-- The new messages whose key belongs to another, with that one's id.
select j.key, d.id from json_each(:messages) j
  join holdfast_dedupe d on d.scope = json_extract(j.value, '$.type') and d.key = json_extract(j.value, '$.dedupe')
 where d.id <> json_extract(j.value, '$.id')
