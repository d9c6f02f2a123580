-- The dedupe keys of messages that are discarded may be used again at once.
delete from holdfast.dedupe d
 where (d.scope, d.key, d.id) in (
     select m.type, m.dedupe, m.id from holdfast.message m where m.seq = any (:seqs::bigint[]) and m.dedupe is not null)
