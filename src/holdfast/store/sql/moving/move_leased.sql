-- Which of these messages somebody holds.
select l.seq from holdfast.lease l where l.seq = any (:seqs::bigint[])
