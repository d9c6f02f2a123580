-- One row for each queue that an unrouted message goes to. They are new rows, because a place is a seq and must be
-- higher than the places that were given in the meantime. Where the id is taken the message is a dead letter (adopt_taken).
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
 where not exists (select 1 from holdfast_message t where t.id = m.id and t.seq <> m.seq
   and (t.queue = s.queue or (t.queue is null and t.seq < m.seq and exists (
       select 1 from holdfast_subscription o where o.queue = s.queue and (o.pattern = t.type or (o.pattern like '%*'
          and substr(t.type, 1, length(o.pattern) - 1) = substr(o.pattern, 1, length(o.pattern) - 1)))))))
 group by m.seq, s.queue order by m.seq, s.queue
