-- The same as op_queue_known of a few messages, by what has ended since a moment.
select m.seq, case when h.id is not null then 'over' else 'here' end
  from holdfast.message m
  left join (select distinct h.id, h.due_at from holdfast.ended_since(:since::timestamptz) h
              where h.queue = :target and h.outcome <> 'archived'
                and coalesce(h.why, '') not like 'moved: queue % has it, too') h
    on h.id = m.id and h.due_at = coalesce(m.due_at, m.created_at)
 where m.seq = any (:seqs::bigint[])
   and (h.id is not null
        or exists (select 1 from holdfast.pending t where t.id = m.id and t.queue = :target
                      and coalesce(t.due_at, t.created_at) = coalesce(m.due_at, m.created_at))
        or exists (select 1 from holdfast.dead d where d.id = m.id and d.queue = :target
                      and coalesce(d.due_at, d.created_at) = coalesce(m.due_at, m.created_at)))
