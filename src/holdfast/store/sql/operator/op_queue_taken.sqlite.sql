-- Messages that are moved become dead letters of the other queue where another message with the same id is pending there.
insert into holdfast_dead (id, queue, seq, type, stream, subject, dedupe, status, epoch, attempts, failures, vanished,
                           refunds, redrives, reason, last_reason, created_at, due_at, deadline, died_at, errors, headers, body, traceback)
select m.id, t.queue,
       case when exists (select 1 from holdfast_dead d where d.id = m.id and d.queue = t.queue and d.seq = m.seq)
            then (select max(d.seq) + 1 from holdfast_dead d where d.id = m.id and d.queue = t.queue) else m.seq end,
       m.type, m.stream, m.subject, m.dedupe, m.status | 32768, min(m.epoch, 2147483646) + 1, m.attempts, m.failures, m.vanished, m.refunds,
       m.redrives, 12, m.reason, m.created_at, m.due_at, m.deadline, :now,
       json_insert(case when json_valid(m.errors) then m.errors else '[]' end, '$[#]', json_object('at', :at, 'reason', 12, 'text',
           'IdTaken: when it came into queue ' || t.queue || ', another message with its id was pending there, number '
           || t.seq || '.')), m.headers, m.body, m.traceback
  from holdfast_message m join holdfast_pending t on t.id = m.id and t.queue = :target
 where m.seq in (select value from json_each(:seqs))
