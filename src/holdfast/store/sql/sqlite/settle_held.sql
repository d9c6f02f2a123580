-- Of the settlements [seq, run, epoch], those whose lease still stands.
select json_extract(j.value, '$[0]'), l.seq, l.epoch from json_each(:settled) j
  join holdfast_lease l on l.seq = json_extract(j.value, '$[1]') and l.epoch = json_extract(j.value, '$[2]')
  join holdfast_message m on m.seq = json_extract(j.value, '$[0]')
