-- Store the messages of occurrences, one row for each queue they go to, claimable since their own time. Those of a stream
-- wait for their place. `taken`: id and queue of those that cannot be stored (fire_taken).
insert into holdfast_message (id, type, body, stream, subject, headers, claimable_at, created_at, due_at, queue, plain,
                              status, head, xact)
select m.id, m.type, m.body, m.stream, m.subject, m.headers, m.due, :now, m.due, coalesce(m.queue, s.queue), null, 1,
       m.stream is null or not coalesce(q.ordered, 1),
       case when m.stream is not null and coalesce(m.queue, s.queue) is not null and coalesce(q.ordered, 1) then 2 end
  from (select key as n, json_extract(value, '$.id') as id, json_extract(value, '$.type') as type,
               json_extract(value, '$.body') as body, json_extract(value, '$.stream') as stream,
               json_extract(value, '$.subject') as subject, json_extract(value, '$.headers') as headers,
               json_extract(value, '$.due') as due, json_extract(value, '$.queue') as queue
          from json_each(:messages)) m
  left join holdfast_subscription s
    on m.queue is null
   and (s.pattern = m.type or (s.pattern like '%*'
        and substr(m.type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1)))
  left join holdfast_queue q on q.name = coalesce(m.queue, s.queue) and m.stream is not null
 where not exists (select 1 from json_each(:taken) t
                    where json_extract(t.value, '$[0]') = m.id
                      and json_extract(t.value, '$[1]') = coalesce(m.queue, s.queue, ''))
 group by m.n, s.queue order by m.n
returning queue
