-- The dedupe keys of messages that are discarded may be used again at once; locked sorted, as settlements do.
delete from holdfast.dedupe d
 where (d.scope, d.key) in (
     select k.scope, k.key from holdfast.message m join holdfast.dedupe k on k.scope = holdfast.dedupe_scope(m.type, m.dedupe) and k.key = m.dedupe
      where m.seq = any (:seqs::bigint[]) and k.id = m.id order by k.scope, k.key for update of k)
