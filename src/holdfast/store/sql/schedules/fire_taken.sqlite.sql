-- Which of these occurrences cannot come into a queue, because a message with that id is pending or dead there: their places
-- in the list of id and queue.
select x.key from json_each(:places) x
 where exists (select 1 from holdfast_message t where t.id = x.value ->> 0 and t.queue is x.value ->> 1)
    or exists (select 1 from holdfast_scheduled t where t.id = x.value ->> 0
                  and (t.queue = x.value ->> 1 or t.queue = 'holdfast/timer'))
    or exists (select 1 from holdfast_dead d where d.id = x.value ->> 0 and d.queue = x.value ->> 1)
