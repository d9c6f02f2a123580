-- Rows of the journal of an execution that begins with a part of another.
insert into holdfast.journal (id, execution, turn, part, body)
select :id, :execution, u.turn, 0, u.body from unnest(:turns::int[], :bodies::text[]) u (turn, body)
