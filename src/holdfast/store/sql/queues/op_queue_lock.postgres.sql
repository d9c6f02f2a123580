-- Lock the messages of a batch; those that somebody works on at this moment are passed over, so that nobody waits.
select seq from holdfast.message where seq = any (:seqs::bigint[]) order by seq for update skip locked
