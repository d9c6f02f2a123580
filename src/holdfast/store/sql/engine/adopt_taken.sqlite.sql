-- Unrouted messages become dead letters of the queues in which another message with the same id is pending, or comes in
-- before them.
insert into holdfast_dead (id, queue, seq, type, stream, subject, dedupe, status, epoch, attempts, failures, vanished,
                           refunds, redrives, reason, created_at, due_at, deadline, died_at, errors, headers, body)
select m.id, s.queue,
       case when exists (select 1 from holdfast_dead d where d.id = m.id and d.queue = s.queue and d.seq = m.seq)
            then (select max(d.seq) + 1 from holdfast_dead d where d.id = m.id and d.queue = s.queue) else m.seq end,
       m.type, m.stream, m.subject, m.dedupe, m.status | 32768, min(m.epoch, 2147483646) + 1, m.attempts, m.failures, m.vanished, m.refunds,
       m.redrives, 12, m.created_at, m.due_at, m.deadline, :now,
       json_insert(case when json_valid(m.errors) then m.errors else '[]' end, '$[#]', json_object('at', :at, 'reason', 12, 'text',
           'IdTaken: when it came into queue ' || s.queue || ', another message with its id was pending there, number '
           || min(t.seq) || '.')), m.headers, m.body
  from json_each(:seqs) j
  join holdfast_message m on m.seq = j.value
  join holdfast_subscription s on s.pattern = m.type or (s.pattern like '%*'
       and substr(m.type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1))
  join holdfast_message t on t.id = m.id and t.seq <> m.seq
   and (t.queue = s.queue or (t.queue is null and t.seq < m.seq and exists (
       select 1 from holdfast_subscription o where o.queue = s.queue and (o.pattern = t.type or (o.pattern like '%*'
          and substr(t.type, 1, length(o.pattern) - 1) = substr(o.pattern, 1, length(o.pattern) - 1))))))
 group by m.seq, s.queue
