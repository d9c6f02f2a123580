-- The state of instances after turns that do nothing but go on or end, fenced: what the trigger of holdfast_turned does, for
-- all of them with one statement. One that an operator has suspended stays so. `rows`: id, execution, turn, state, mark,
-- entries, size, and [result, poison, trouble, status, attributes] of those that have any.
update holdfast_instance
   set turn = g.turn, mark = g.mark, result = g.more ->> 0, poison = g.more ->> 1,
       state = case when holdfast_instance.state = 'suspended' and g.state = 'running' then holdfast_instance.state else g.state end,
       trouble = case when holdfast_instance.state = 'suspended' and g.state = 'running' then holdfast_instance.trouble
                      else g.more ->> 2 end,
       status = coalesce(g.more ->> 3, holdfast_instance.status),
       attributes = coalesce(g.more ->> 4, holdfast_instance.attributes),
       entries = g.entries, size = g.size, turned_at = :now, ended_at = case when g.state <> 'running' then :now end
  from (select value ->> 0 as id, value ->> 1 as execution, value ->> 2 as turn, value ->> 3 as state, value ->> 4 as mark,
               value ->> 5 as entries, value ->> 6 as size, value -> 7 as more
          from json_each(:rows)) g
 where holdfast_instance.id = g.id and holdfast_instance.execution = g.execution and holdfast_instance.turn = g.turn - 1
   and holdfast_instance.state in ('running', 'suspended')
