-- Whether a queue is paused, and since when its first message could be sent.
select q.paused_at, q.paused_why,
       (select m.claimable_at from holdfast.message m where m.queue = :queue::text and m.head and m.vanished = 0
         order by m.claimable_at limit 1)
  from (select 1) one left join holdfast.queue q on q.name = :queue::text
