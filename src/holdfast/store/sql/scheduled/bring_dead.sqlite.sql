-- Due messages become dead letters of the queues in which another message with the same id is pending. `places`: number and
-- queue of each.
insert into holdfast_dead (id, queue, seq, type, stream, subject, dedupe, status, epoch, attempts, failures, vanished,
                           refunds, redrives, reason, created_at, due_at, deadline, died_at, errors, headers, body)
select s.id, p.queue,
       case when exists (select 1 from holdfast_dead d where d.id = s.id and d.queue = p.queue and d.seq = s.seq)
            then (select max(d.seq) + 1 from holdfast_dead d where d.id = s.id and d.queue = p.queue) else s.seq end,
       s.type, s.stream, s.subject, s.dedupe, s.status | 32768, min(s.epoch, 2147483646) + 1, 0, 0, 0, 0, 0, 12, s.created_at,
       s.due_at, s.deadline, :now,
       json_array(json_object('at', :at, 'reason', 12, 'text', 'IdTaken: when it came into queue ' || p.queue
           || ', another message with its id was pending there, number '
           || coalesce((select t.seq from holdfast_message t where t.id = s.id and t.queue = p.queue), 'unknown') || '.')),
       s.headers, s.body
  from (select json_extract(value, '$[0]') as seq, json_extract(value, '$[1]') as queue from json_each(:places)) p
  join holdfast_scheduled s on s.seq = p.seq
