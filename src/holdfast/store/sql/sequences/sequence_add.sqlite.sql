-- A sequence that has drawn nothing yet has no row.
insert into sqlite_sequence (name, seq)
select :sequence, 0 where not exists (select 1 from sqlite_sequence where name = :sequence)
