-- The same as op_queue_known of a few messages, by what has ended since a moment. (The plus: it is found by its id.)
select x.seq, x.state
  from (select m.seq,
               case when exists (select 1 from holdfast_history h
                                  where h.id = m.id and h.queue = :target and h.outcome <> 'archived'
                                    and coalesce(h.why, '') not like 'moved: queue % has it, too'
                                    and +h.ended_at >= :since
                                    and h.due_at = coalesce(m.due_at, m.created_at)) then 'over'
                    when exists (select 1 from holdfast_pending t where t.id = m.id and t.queue = :target
                                    and coalesce(t.due_at, t.created_at) = coalesce(m.due_at, m.created_at))
                      or exists (select 1 from holdfast_dead d where d.id = m.id and d.queue = :target
                                    and coalesce(d.due_at, d.created_at) = coalesce(m.due_at, m.created_at))
                    then 'here' end as state
          from holdfast_message m
         where m.seq in (select value from json_each(:seqs))) x
 where x.state is not null
