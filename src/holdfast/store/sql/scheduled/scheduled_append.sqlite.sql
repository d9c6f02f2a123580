-- Store messages that are scheduled, one row for each queue they go to. Their numbers are the next of `message`
-- (scheduled_numbers). Those of a stream, and those that nobody subscribes to, come into `holdfast/timer`.
insert into holdfast_scheduled (seq, id, type, body, stream, subject, headers, dedupe, claimable_at, created_at, due_at,
                                deadline, queue, target, status)
select (select max(coalesce((select q.seq from sqlite_sequence q where q.name = 'holdfast_message'), 0),
                   coalesce((select max(o.seq) from holdfast_scheduled o), 0)))
       + row_number() over (order by x.n, x.queue),
       x.id, x.type, x.body, x.stream, x.subject, x.headers, x.dedupe, x.due, :now, x.due, x.deadline,
       coalesce(x.queue, 'holdfast/timer'), x.target, x.status
  from (select m.*, case when m.stream is null then coalesce(m.given, s.queue) end as queue,
               case when m.stream is not null then m.given end as target
          from (select key as n, json_extract(value, '$.id') as id, json_extract(value, '$.type') as type,
                       json_extract(value, '$.body') as body, json_extract(value, '$.stream') as stream,
                       json_extract(value, '$.subject') as subject, json_extract(value, '$.headers') as headers,
                       json_extract(value, '$.dedupe') as dedupe, json_extract(value, '$.due') as due,
                       json_extract(value, '$.deadline') as deadline, json_extract(value, '$.queue') as given,
                       json_extract(value, '$.status') as status
                  from json_each(:messages)) m
          left join holdfast_subscription s
            on m.given is null and m.stream is null
           and (s.pattern = m.type or (s.pattern like '%*'
                and substr(m.type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1)))
         group by m.n, s.queue) x
 order by 1
