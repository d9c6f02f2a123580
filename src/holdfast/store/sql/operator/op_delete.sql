-- Messages that have ended leave the table.
delete from holdfast.message where seq = any (:seqs::bigint[])
