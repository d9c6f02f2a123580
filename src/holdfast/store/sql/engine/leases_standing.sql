-- Of these leases, those that stand.
select seq, epoch from holdfast.lease where seq = any (:seqs::bigint[])
