-- The dedupe keys of messages that end are held for a while from now on; locked sorted, as settlements do.
update holdfast.dedupe d set ended_at = coalesce(:now::timestamptz, clock_timestamp())
 where (d.scope, d.key) in (
     select k.scope, k.key from holdfast.message m join holdfast.dedupe k on k.scope = holdfast.dedupe_scope(m.type, m.dedupe) and k.key = m.dedupe
      where m.seq = any (:seqs::bigint[]) order by k.scope, k.key for update of k)
