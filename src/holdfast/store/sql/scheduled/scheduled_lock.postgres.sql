-- Those of these messages that are scheduled, locked. Who brings one over at this moment is waited for.
select seq from holdfast.scheduled where seq = any (:seqs::bigint[]) order by seq for update
