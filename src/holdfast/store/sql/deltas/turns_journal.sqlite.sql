-- The journal rows of turns [id, execution, turn, part, body] that do nothing but go on or end.
insert into holdfast_journal (id, execution, turn, part, body)
select value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 from json_each(:rows)
