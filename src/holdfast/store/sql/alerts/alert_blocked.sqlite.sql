-- Streams that have been blocked since before a moment, with something behind the head or halted: of each queue the
-- first few, and how many there are. A head is assumed to block since the oldest failure that is kept of it.
select y.queue, y.stream, y.since, y.open, y.head_id, y.halted_by, y.count from (
    select x.*, count(*) over (partition by x.queue) as count,
           row_number() over (partition by x.queue order by x.since, x.stream) as n
      from (select s.queue, s.name as stream, s.open, s.halted_by, h.id as head_id,
                   coalesce(s.halted_at,
                       cast((julianday(case when json_valid(h.errors) then json_extract(h.errors, '$[0].at') end) - 2440587.5) * 86400000000 as integer),
                       h.created_at) as since
              from holdfast_stream s
              left join holdfast_message h on h.queue = s.queue and h.stream = s.name and h.head
                                           and h.position is not null
              left join holdfast_lease l on l.seq = h.seq
             where s.halted_by is not null
                or (s.open > 1 and coalesce(l.until, 0) < :now
                    and (h.claimable_at > :now or h.vanished > 0 or l.seq is not null))) x
     where x.since <= :before) y
 where y.n <= :few order by y.since, y.queue, y.stream limit :limit
