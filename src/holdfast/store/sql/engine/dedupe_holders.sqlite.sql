-- Who holds the keys of new messages: number of the message in the call, scope, key, id of the holder.
select json_extract(j.value, '$[0]'), d.scope, d.key, d.id from json_each(:keys) j
  join holdfast_dedupe d on d.scope = json_extract(j.value, '$[1]') and d.key = json_extract(j.value, '$[2]')
 order by j.key
