-- Messages of a batch whose id is taken in another queue, by a message that is pending there.
select m.seq from holdfast.message m join holdfast.pending t on t.id = m.id and t.queue = :target
 where m.seq = any (:seqs::bigint[])
