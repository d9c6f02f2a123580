-- Why the next messages of a queue that wait for a retry have failed: the reason, the error, the id. Reads a bounded number.
select x.reason, x.errors -> -1 ->> 'text'::text, x.id
  from (select m.reason, m.errors, m.id, m.failures from holdfast.message m
         where m.queue = :queue and m.head and m.vanished = 0
           and m.claimable_at > (select coalesce(:now::timestamptz, clock_timestamp()))
           and m.claimable_at < 'infinity' order by m.claimable_at limit 1000) x
 where x.failures > 0
