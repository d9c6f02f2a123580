-- By queue: due messages in `scheduled` that were not brought over: whether the queue is paused, the oldest, since when it
-- is due, and how many have been due longer than allowed. Only the oldest are read, up to a limit.
select x.queue, q.paused_at is not null, x.id, x.claimable_at, x.late
  from (select o.queue, o.id, o.claimable_at,
               row_number() over (partition by o.queue order by o.claimable_at, o.seq) as nth,
               sum(case when o.claimable_at <= :before::timestamptz then 1 else 0 end) over (partition by o.queue) as late
          from (select s.queue, s.id, s.claimable_at, s.seq from holdfast.scheduled s where s.claimable_at <= (select :now)
                 order by s.claimable_at, s.seq limit :limit::int) o) x
  left join holdfast.queue q on q.name = x.queue
 where x.nth = 1 order by x.claimable_at
