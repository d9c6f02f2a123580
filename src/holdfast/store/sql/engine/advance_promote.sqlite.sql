-- The lowest message in the order of each stream becomes its head, unless the stream is halted.
update holdfast_message set head = 1, claimable_at = max(claimable_at, :now)
 where not head and seq in (
     select (select f.seq from holdfast_message f
              where f.queue = s.queue and f.stream = s.name and f.position >= json_extract(j.value, '$[3]')
              order by f.position limit 1)
       from json_each(:streams) j
       join holdfast_stream s on s.queue = json_extract(j.value, '$[0]') and s.name = json_extract(j.value, '$[1]')
      where s.halted_by is null)
