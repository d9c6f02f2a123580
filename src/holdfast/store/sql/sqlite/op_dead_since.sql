-- What the history says last of messages since they died. All at the same instant: an end rather than an archive.
-- (The plus: it is found by its id.)
select id, queue, outcome
  from (select h.id, h.queue, h.outcome,
               row_number() over (partition by h.id, h.queue order by h.ended_at desc, h.outcome = 'archived') as n
          from json_each(:ids) i join json_each(:queues) q on q.key = i.key join json_each(:times) t on t.key = i.key
          join holdfast_history h on h.id = i.value and h.queue = q.value and h.ended_at >= t.value
         where +h.ended_at >= :since)
 where n = 1
