-- Those of these messages that are scheduled, locked. Waits for a transaction that is bringing one over.
select seq from holdfast.scheduled where seq = any (:seqs::bigint[]) order by seq for update
