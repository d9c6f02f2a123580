-- The dedupe keys of messages that end are held for a while from now on.
update holdfast.dedupe d set ended_at = coalesce(:now::timestamptz, clock_timestamp())
 where (d.scope, d.key) in (
     select m.type, m.dedupe from holdfast.message m where m.seq = any (:seqs::bigint[]) and m.dedupe is not null)
