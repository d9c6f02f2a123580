-- Of these leases, those that are valid: there is one writer, so no other transaction is about to change one.
select seq, epoch from holdfast_lease where seq in (select value from json_each(:seqs))
