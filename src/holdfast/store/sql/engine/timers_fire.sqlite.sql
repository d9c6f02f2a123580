-- Timers that fire are stored as new rows, one for each queue they go to, where the id is not taken (timers_taken); without
-- a subscriber they are unrouted. They wait for their place (place_*).
insert into holdfast_message (id, type, body, stream, subject, headers, dedupe, claimable_at, created_at, due_at, deadline,
                              queue, plain, status, head, xact)
select m.id, m.type, m.body, m.stream, m.subject, m.headers, m.dedupe, max(coalesce(m.due_at, :now), :now), :now, m.due_at,
       m.deadline, coalesce(m.target, s.queue), null, m.status, m.stream is null or not coalesce(q.ordered, 1),
       case when m.stream is not null and coalesce(m.target, s.queue) is not null and coalesce(q.ordered, 1) then 2 end
  from json_each(:seqs) j
  join holdfast_message m on m.seq = j.value
  left join holdfast_subscription s on m.target is null and (s.pattern = m.type or (s.pattern like '%*'
       and substr(m.type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1)))
  left join holdfast_queue q on q.name = coalesce(m.target, s.queue)
 where not exists (select 1 from holdfast_message t where t.id = m.id and t.queue = coalesce(m.target, s.queue))
 group by m.seq, s.queue order by j.key, s.queue
