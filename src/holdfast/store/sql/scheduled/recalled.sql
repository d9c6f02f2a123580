-- Messages that came back into `message` leave `scheduled`.
delete from holdfast.scheduled as s
 where s.seq = any (:seqs::bigint[]) and exists (select 1 from holdfast.message m where m.seq = s.seq)
