-- Why the next messages of a queue that wait for a retry have failed: the reason, the error, the id. Reads a bounded number.
select x.reason, case when json_valid(x.errors) then json_extract(x.errors, '$[#-1].text') end, x.id
  from (select m.reason, m.errors, m.id, m.failures from holdfast_message m
         where m.queue = :queue and m.head and m.vanished = 0 and m.claimable_at > :now
           and m.claimable_at < 9223372036854775807 order by m.claimable_at limit 1000) x
 where x.failures > 0
