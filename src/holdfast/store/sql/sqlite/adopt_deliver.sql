-- One row for each queue that an unrouted message goes to. They are new rows, because a place is a seq and must come
-- behind the places that were given meanwhile. What was published twice with one id goes to each queue once.
insert into holdfast_message (claimable_at, created_at, due_at, deadline, id, xact, status, head, queue, plain, type, stream,
                              subject, dedupe, headers, body)
select max(m.claimable_at, :now), m.created_at, m.due_at, m.deadline, m.id,
       case when m.stream is not null and coalesce(q.ordered, 1) then 2 end,
       m.status, m.stream is null or not coalesce(q.ordered, 1), s.queue, null, m.type, m.stream, m.subject, m.dedupe, m.headers, m.body
  from json_each(:seqs) j
  join holdfast_message m on m.seq = j.value
  join holdfast_subscription s on s.pattern = m.type or (s.pattern like '%*'
       and substr(m.type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1))
 left join holdfast_queue q on q.name = s.queue
 where true
 group by m.seq, s.queue order by m.seq, s.queue
    on conflict (id, queue) do nothing
