-- Which messages of a queue another queue has already, by one pass over the history: 'over' if the message has ended there,
-- 'here' if it is pending or a dead letter there. It is the same message if id and time are the same: an id may have been
-- used again. An archived dead letter has not ended, and neither has a message that was moved away because
-- another queue had it, too: it was not handled here.
select m.seq, case when h.id is not null then 'over' else 'here' end
  from holdfast.pending m
  left join (select distinct h.id, h.due_at from holdfast.history h
              where h.queue = :target and h.outcome <> 'archived'
                and coalesce(h.why, '') not like 'moved: queue % has it, too') h
    on h.id = m.id and h.due_at = coalesce(m.due_at, m.created_at)
 where m.queue = :source
   and (h.id is not null
        or exists (select 1 from holdfast.pending t where t.id = m.id and t.queue = :target
                      and coalesce(t.due_at, t.created_at) = coalesce(m.due_at, m.created_at))
        or exists (select 1 from holdfast.dead d where d.id = m.id and d.queue = :target
                      and coalesce(d.due_at, d.created_at) = coalesce(m.due_at, m.created_at)))
