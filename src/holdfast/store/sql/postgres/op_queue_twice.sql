-- Which messages of a batch are pending in another queue as well.
select m.seq from holdfast.message m join holdfast.message t on t.id = m.id and t.queue = :target where m.seq = any (:seqs::bigint[])
