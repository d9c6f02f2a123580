-- Of these leases, those that stand: there is one writer, so nobody is about to change one.
select seq, epoch from holdfast_lease where seq in (select value from json_each(:seqs))
