select seq, epoch from holdfast_lease where worker = :worker
