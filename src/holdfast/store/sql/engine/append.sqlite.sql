-- Store new messages, one row for each queue they go to. Those of a stream wait for their place (place_*). Messages due
-- in more than a minute, or that enter a stream later, are stored elsewhere (scheduled_append).
insert into holdfast_message (id, type, body, stream, subject, headers, dedupe, claimable_at, created_at, due_at,
                              deadline, queue, plain, status, head, xact)
select m.id, m.type, m.body, m.stream, m.subject, m.headers, m.dedupe, max(coalesce(m.due, :now), :now), :now, m.due,
       m.deadline,
       coalesce(m.queue, s.queue), null, m.status, m.stream is null or not coalesce(q.ordered, 1),
       case when m.stream is not null and coalesce(m.queue, s.queue) is not null and coalesce(q.ordered, 1) then 2 end
  from (select key as n, json_extract(value, '$.id') as id, json_extract(value, '$.type') as type,
               json_extract(value, '$.body') as body, json_extract(value, '$.stream') as stream,
               json_extract(value, '$.subject') as subject, json_extract(value, '$.headers') as headers,
               json_extract(value, '$.dedupe') as dedupe, json_extract(value, '$.due') as due,
               json_extract(value, '$.deadline') as deadline, json_extract(value, '$.queue') as queue,
               json_extract(value, '$.status') as status
          from json_each(:messages)) m
  left join holdfast_subscription s
    on m.queue is null
   and (s.pattern = m.type or (s.pattern like '%*'
        and substr(m.type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1)))
  left join holdfast_queue q on q.name = coalesce(m.queue, s.queue) and m.stream is not null
 group by m.n, s.queue order by m.n
