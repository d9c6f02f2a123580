-- The positions of instances, for their next turns.
select id, start, execution, turn, mark, state, reply, entries, size from holdfast.instance where id = any (:ids::text[])
