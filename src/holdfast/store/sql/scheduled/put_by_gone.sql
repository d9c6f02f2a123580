-- Messages that were moved to `scheduled` leave `message`.
delete from holdfast.message as m
 where m.seq = any (:seqs::bigint[]) and exists (select 1 from holdfast.scheduled s where s.seq = m.seq)
