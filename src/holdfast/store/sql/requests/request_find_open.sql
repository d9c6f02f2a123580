-- Open requests, those that need something next first.
select id, kind, variant, type, stream, subject, state, reason, created_at, deadline, soft_at, told_at, ended_at, timed_out_at,
       body, result, received_at, accepted_at, accepted_by, results, late
  from holdfast.request
 where next_at is not null
   and (:kind::text is null or kind = :kind) and (:subject::text is null or subject = :subject)
 order by next_at, id limit :count::int
