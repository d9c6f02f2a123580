-- The numbers that `scheduled` has drawn are not drawn again.
update sqlite_sequence set seq = max(seq, (select max(s.seq) from holdfast_scheduled s)) where name = 'holdfast_message'
