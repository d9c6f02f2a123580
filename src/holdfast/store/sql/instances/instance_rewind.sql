-- An instance continues with its next execution, whose journal is stored beside it, if its position has not changed. The
-- turn that runs now is refused by its fence. One that an operator has suspended stays so.
update holdfast.instance
   set execution = execution + 1, turn = :turns::int, mark = :mark::uuid, result = null, poison = null, ended_at = null,
       trouble = case when state = 'suspended' then trouble end,
       state = case when state = 'suspended' then state else 'running' end,
       entries = :entries::int, size = :size::bigint, turned_at = :now
 where id = :id and execution = :execution and turn = :turn returning state
