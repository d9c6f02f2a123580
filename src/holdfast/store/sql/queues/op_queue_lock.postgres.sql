-- Lock the messages of a batch; locked ones are skipped, so that nothing waits.
select seq from holdfast.message where seq = any (:seqs::bigint[]) order by seq for update skip locked
