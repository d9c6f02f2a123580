-- Which of these guesses [queue, instance, execution, turn, state, mark] fit: nothing is open in the stream of the
-- instance, nothing halts it or its queue, and the instance stands where the worker of its activity believed. An
-- instance whose end somebody waits for ends by a message.
select g.n
  from (select key as n, value ->> 0 as queue, value ->> 1 as id, value ->> 2 as execution, value ->> 3 as turn,
               value ->> 4 as state, value ->> 5 as was
          from json_each(:rows)) g
 cross join holdfast_instance i on i.id = g.id
 where i.execution = g.execution and i.turn = g.turn - 1 and i.mark = g.was and i.state = 'running'
   and (g.state = 'running' or i.reply is null)
   and not exists (select 1 from holdfast_stream s
                    where s.queue = g.queue and s.name = g.id and (s.open > 0 or s.halted_by is not null))
   and not exists (select 1 from holdfast_queue q where q.name = g.queue and q.paused_at is not null)
