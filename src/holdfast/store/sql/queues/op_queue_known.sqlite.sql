-- Which messages of a queue another queue has already: 'over' if the message has ended there, 'here' if it is pending or a
-- dead letter there. It is the same message if id and time are the same: an id may have been used again. An archived dead
-- letter has not ended, and neither has a message that was moved away because another queue had it, too: it was not handled
-- here.
select x.seq, x.state
  from (select m.seq,
               case when exists (select 1 from holdfast_history h
                                  where h.id = m.id and h.queue = :target and h.outcome <> 'archived'
                                    and coalesce(h.why, '') not like 'moved: queue % has it, too'
                                    and h.due_at = coalesce(m.due_at, m.created_at)) then 'over'
                    when exists (select 1 from holdfast_pending t where t.id = m.id and t.queue = :target
                                    and coalesce(t.due_at, t.created_at) = coalesce(m.due_at, m.created_at))
                      or exists (select 1 from holdfast_dead d where d.id = m.id and d.queue = :target
                                    and coalesce(d.due_at, d.created_at) = coalesce(m.due_at, m.created_at))
                    then 'here' end as state
          from holdfast_pending m
         where m.queue = :source) x
 where x.state is not null
