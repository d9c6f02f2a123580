-- Lock those of these messages that nobody else has locked and that may be claimed on their own. Never waits.
select seq from holdfast.message where seq = any (:seqs::bigint[]) and head order by seq for update skip locked
