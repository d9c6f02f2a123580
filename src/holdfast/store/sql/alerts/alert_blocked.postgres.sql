-- Streams that have been blocked since before a moment, with something behind the head or halted: of each queue the
-- first few, and how many there are. A head is assumed to block since the oldest failure that is kept of it.
with moment as materialized (select coalesce(:now::timestamptz, clock_timestamp()) as now)
select y.queue, y.stream, y.since, y.open, y.head_id, y.halted_by, y.count from (
    select x.*, count(*) over (partition by x.queue) as count,
           row_number() over (partition by x.queue order by x.since, x.stream) as n
      from (select s.queue, s.name as stream, s.open, s.halted_by, h.id as head_id,
                   coalesce(s.halted_at, case when h.errors -> 0 ->> 'at'::text ~ '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:' then (h.errors -> 0 ->> 'at'::text)::timestamptz end,
                            h.created_at) as since
              from moment t cross join holdfast.stream s
              left join holdfast.message h on h.queue = s.queue and h.stream = s.name and h.head
                                           and h.position is not null
              left join holdfast.lease l on l.seq = h.seq
             where s.halted_by is not null
                or (s.open > 1 and (l.until is null or l.until < t.now)
                    and (h.claimable_at > t.now or h.vanished > 0 or l.seq is not null))) x
     where x.since <= :before::timestamptz) y
 where y.n <= :few::int order by y.since, y.queue, y.stream limit :limit::int
