-- What was brought over leaves the table.
delete from holdfast.scheduled where seq = any (:seqs::bigint[])
