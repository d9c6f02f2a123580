-- Count messages into the order of their streams; say how many are in it now and what halts it.
insert into holdfast_stream (queue, name, open)
select q.value, s.value, c.value from json_each(:queues) q
  join json_each(:streams) s on s.key = q.key join json_each(:counts) c on c.key = q.key
 where true
    on conflict (queue, name) do update set open = open + excluded.open
returning queue, name, open, halted_by
