-- Rows of the journal of an execution that begins with a part of another.
insert into holdfast_journal (id, execution, turn, part, body)
select :id, :execution, t.value, 0, b.value from json_each(:turns) t join json_each(:bodies) b on b.key = t.key
