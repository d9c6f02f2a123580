-- Which of these messages have ended in their queue, by their last row in the history: since they died, or as done. Of
-- rows at the same instant an end counts more than an archive, which can be restored. It is the same message if id and
-- time are the same.
select x.n
  from (select i.key as n, t.value as died_at, h.ended_at, h.outcome,
               row_number() over (partition by i.key order by h.ended_at desc, h.outcome = 'archived') as last
          from json_each(:ids) i join json_each(:queues) q on q.key = i.key join json_each(:times) t on t.key = i.key
          join json_each(:dues) a on a.key = i.key
          join holdfast_history h on h.id = i.value and h.queue = q.value and h.due_at = a.value) x
 where x.last = 1 and x.outcome <> 'archived' and (x.ended_at >= x.died_at or x.outcome = 'done')
