-- Store the messages of occurrences, one row for each queue they go to, claimable since their own time. Those of a stream
-- wait for their place.
insert into holdfast_message (id, type, body, stream, subject, headers, claimable_at, created_at, due_at, queue, plain,
                              status, head, xact)
select m.id, m.type, m.body, m.stream, m.subject, m.headers, m.due, :now, m.due, m.queue, null, 1,
       m.stream is null or not coalesce(q.ordered, 1),
       case when m.stream is not null and m.queue is not null and coalesce(q.ordered, 1) then 2 end
  from (select value ->> 0 as id, value ->> 1 as type, value ->> 2 as body, value ->> 3 as stream, value ->> 4 as subject,
               value ->> 5 as headers, value ->> 6 as due, value ->> 7 as queue
          from json_each(:messages)) m
  left join holdfast_queue q on m.stream is not null and q.name = m.queue
