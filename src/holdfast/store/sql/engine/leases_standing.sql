-- Of these leases, those that are valid.
select seq, epoch from holdfast.lease where seq = any (:seqs::bigint[])
