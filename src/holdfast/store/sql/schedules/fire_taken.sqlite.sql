-- Which of these occurrences cannot come into a queue, because a message with that id is pending or dead there.
select x.id, coalesce(x.queue, '')
  from (select distinct json_extract(m.value, '$.id') as id, coalesce(json_extract(m.value, '$.queue'), s.queue) as queue
          from json_each(:messages) m
          left join holdfast_subscription s
            on json_extract(m.value, '$.queue') is null
           and (s.pattern = json_extract(m.value, '$.type') or (s.pattern like '%*'
                and substr(json_extract(m.value, '$.type'), 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1)))) x
 where exists (select 1 from holdfast_message t where t.id = x.id and t.queue is x.queue)
    or exists (select 1 from holdfast_scheduled t where t.id = x.id and (t.queue = x.queue or t.queue = 'holdfast/timer'))
    or exists (select 1 from holdfast_dead d where d.id = x.id and d.queue = x.queue)
