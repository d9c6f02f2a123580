-- Of these leases, those that stand.
select seq, epoch from holdfast_lease where seq in (select value from json_each(:seqs))
