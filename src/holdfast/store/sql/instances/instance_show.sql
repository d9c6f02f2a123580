-- Everything about an instance except its journal.
select id, queue, state, execution, turn, status, trouble, attributes, entries, size, started_at, turned_at, ended_at,
       result
  from holdfast.instance where id = :id
