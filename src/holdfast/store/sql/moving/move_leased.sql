-- Which of these messages are leased.
select l.seq from holdfast.lease l where l.seq = any (:seqs::bigint[])
