-- What questions about pending work begin with: each delivery with the state that a person sees. Nothing of it is
-- stored. A parked one has no time at which it is claimable; a lease that has lapsed makes a suspect.
with run as materialized (
    select l.seq, l.until, l.run_end, m.queue, m.stream, m.position, coalesce(w.name, 'worker ' || l.worker) as worker
      from holdfast_lease l join holdfast_message m on m.seq = l.seq left join holdfast_worker w on w.id = l.worker),
delivery as (
    select m.seq, m.id, m.queue, m.type, m.stream, m.position, m.head, m.subject, m.status, m.epoch, m.attempts,
           m.failures, m.vanished, m.refunds, m.redrives, m.reason, m.created_at, m.due_at, m.deadline,
           nullif(m.claimable_at, 9223372036854775807) as claimable_at, m.target, m.dedupe, m.errors, m.headers, m.body,
           :now as now,
           coalesce(r.worker, f.worker) as worker, coalesce(r.until, f.until) as until,
           case when m.queue is null then 'unrouted'
                when coalesce(r.until, f.until) >= :now then 'leased'
                when m.claimable_at = 9223372036854775807 then 'parked'
                when m.position is not null and not m.head then
                     case when hr.until >= :now or (hr.seq is null and h.vanished = 0 and h.claimable_at <= :now)
                          then 'waiting' else 'blocked' end
                when m.vanished > 0 or r.seq is not null then 'suspect'
                when m.claimable_at <= :now then 'ready'
                when m.failures > 0 then 'retrying' else 'scheduled' end as state
      from holdfast_message m
      left join run r on r.seq = m.seq
      left join run f on f.queue = m.queue and f.stream = m.stream and m.position > f.position and m.position <= f.run_end
      left join holdfast_message h on h.queue = m.queue and h.stream = m.stream and h.head and h.position is not null
                                  and not m.head and m.position is not null
      left join run hr on hr.seq = h.seq)
