-- Due messages are stored in their queues and keep their time: claims are the oldest first. Those of a stream wait for
-- their place. `places`: number and queue of each; the database copies the bodies itself.
insert into holdfast_message (id, type, body, stream, subject, headers, dedupe, claimable_at, created_at, due_at, deadline,
                              queue, plain, status, epoch, head, xact)
select s.id, s.type, s.body, s.stream, s.subject, s.headers, s.dedupe, s.claimable_at, s.created_at, s.due_at, s.deadline,
       p.queue, null, s.status, s.epoch, s.stream is null or not coalesce(q.ordered, 1),
       case when s.stream is not null and p.queue is not null and coalesce(q.ordered, 1) then 2 end
  from (select key as n, json_extract(value, '$[0]') as seq, json_extract(value, '$[1]') as queue from json_each(:places)) p
  join holdfast_scheduled s on s.seq = p.seq
  left join holdfast_queue q on s.stream is not null and q.name = p.queue
 order by p.n
