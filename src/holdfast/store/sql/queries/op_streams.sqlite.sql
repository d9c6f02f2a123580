-- Streams with the head of each. `blocked`: only those that are halted or whose head cannot be claimed
-- now. Those with most behind the head come first.
select x.* from (
    select s.queue, s.name, s.open, s.halted_by, s.halted_at, h.id, h.type,
           case when h.seq is null then null
                when l.until >= :now then 'leased' when h.claimable_at = 9223372036854775807 then 'parked'
                when h.vanished > 0 or l.seq is not null then 'suspect' when h.claimable_at <= :now then 'ready'
                when h.failures > 0 then 'retrying' else 'scheduled' end as state,
           nullif(h.claimable_at, 9223372036854775807), h.attempts, h.failures, h.vanished, h.status, h.reason, h.created_at,
           case when json_valid(h.errors) then json_extract(h.errors, '$[#-1].text') end, case when json_valid(h.errors) then json_extract(h.errors, '$[#-1].at') end,
           coalesce(w.name, 'worker ' || l.worker), l.until,
           (select m.created_at from holdfast_message m where m.queue = s.queue and m.stream = s.name
               and m.position is not null order by m.position desc limit 1)
      from holdfast_stream s
      left join holdfast_message h on h.queue = s.queue and h.stream = s.name and h.head and h.position is not null
      left join holdfast_lease l on l.seq = h.seq left join holdfast_worker w on w.id = l.worker
     where (s.open > 0 or s.halted_by is not null)
       and (:queue is null or s.queue = :queue) and (:stream is null or s.name = :stream)) x
 where not :blocked
    or x.halted_by is not null or x.state in ('parked', 'suspect', 'retrying', 'scheduled')
 order by x.open desc, x.queue, x.name limit :limit
