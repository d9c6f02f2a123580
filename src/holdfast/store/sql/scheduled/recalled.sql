-- What has come back into `message` is not scheduled any more.
delete from holdfast.scheduled as s
 where s.seq = any (:seqs::bigint[]) and exists (select 1 from holdfast.message m where m.seq = s.seq)
