select seq, epoch from holdfast.lease where worker = :worker
