-- Of the leases [seq, epoch], those that are lost or asked to be cancelled.
select json_extract(j.value, '$[0]'), l.seq is null from json_each(:leases) j
  left join holdfast_lease l on l.seq = json_extract(j.value, '$[0]') and l.epoch = json_extract(j.value, '$[1]')
 where l.seq is null or l.cancel
