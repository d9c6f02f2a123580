-- Of these leases, those that are valid and that no open transaction is about to change.
select seq, epoch from holdfast.lease where seq = any (:seqs::bigint[]) for no key update skip locked
