-- The next streams by queue and name: how many are in the order, the lowest place in it, that of the head, the last.
select s.queue, s.name, s.open, s.halted_by is not null, null, count(m.seq), min(m.position),
       min(case when m.head then m.position end), max(m.position)
  from (select * from holdfast_stream where (queue, name) > (:queue, :name) order by queue, name limit :limit) s
  left join holdfast_message m on m.queue = s.queue and m.stream = s.name and m.position is not null
 group by s.queue, s.name order by s.queue, s.name
