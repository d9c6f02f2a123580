-- Who holds the keys of new messages: number of the message in the call, scope, key, id of the holder.
select j.key, d.scope, d.key, d.id from json_each(:messages) j
  join holdfast_dedupe d
    on d.scope = case when unicode(json_extract(j.value, '$.dedupe')) = 31 then '' else json_extract(j.value, '$.type') end
   and d.key = json_extract(j.value, '$.dedupe')
 order by j.key
