-- The beginning of questions about pending work: each delivery with the state that a person sees, which is computed
-- here and not stored. A parked one has no claimable time; an expired lease makes a suspect. Messages handed
-- out in a run are covered by the lease of its head.
with moment as materialized (select coalesce(:now::timestamptz, clock_timestamp()) as now),
delivery as (
    select m.seq, m.id, m.queue, m.type, m.stream, m.position, m.head, m.subject, m.status, m.epoch, m.attempts,
           m.failures, m.vanished, m.refunds, m.redrives, m.reason, m.created_at, m.due_at, m.deadline,
           nullif(m.claimable_at, 'infinity') as claimable_at, m.target, m.dedupe, m.errors, m.traceback, m.headers, m.body,
           coalesce(w.name, 'worker ' || coalesce(l.worker, hl.worker)::text) as worker, coalesce(l.until, hl.until) as until,
           case when m.queue is null then 'unrouted'
                when coalesce(l.until, hl.until) >= n.now then 'leased'
                when m.claimable_at = 'infinity' then 'parked'
                when m.position is not null and not m.head then
                     case when hx.until >= n.now or (hx.seq is null and h.vanished = 0 and h.claimable_at <= n.now)
                          then 'waiting' else 'blocked' end
                when m.vanished > 0 or l.seq is not null then 'suspect'
                when m.claimable_at <= n.now then 'ready'
                when m.failures > 0 then 'retrying' else 'scheduled' end as state
      from holdfast.pending m cross join moment n
      left join holdfast.lease l on l.seq = m.seq
      left join holdfast.message h on h.queue = m.queue and h.stream = m.stream and h.head and h.position is not null
                            and not m.head and m.position is not null
      left join holdfast.lease hx on hx.seq = h.seq
      left join holdfast.lease hl on hl.seq = h.seq and hl.run_end >= m.position
      left join holdfast.worker w on w.id = coalesce(l.worker, hl.worker))
