-- The dedupe key of a dead letter that is discarded may be used again at once.
delete from holdfast.dedupe k using holdfast.dead d
 where d.id = :id::uuid and d.queue = :queue and d.seq = :number::bigint and k.scope = holdfast.dedupe_scope(d.type, d.dedupe) and k.key = d.dedupe and k.id = d.id
