-- Which of the waiting messages become heads: the first of each stream that has nothing else in its order.
select min(m.seq) from holdfast_message m
  join holdfast_stream s on s.queue = m.queue and s.name = m.stream
 where m.xact = 2 and s.halted_by is null
 group by m.queue, m.stream having max(s.open) = count(*)
