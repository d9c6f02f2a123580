-- Which of these messages are calls that an orchestration waits for, and where their answers go.
select id, headers from holdfast.message
 where seq = any (:seqs::bigint[]) and headers like '%"holdfast-reply":%'
