-- Requests that have ended, the last ones first.
select id, kind, variant, type, stream, subject, state, reason, created_at, deadline, soft_at, told_at, ended_at, timed_out_at,
       body, result, received_at, accepted_at, accepted_by, results, late
  from holdfast.request
 where ended_at is not null and (:state::text is null or state = :state)
   and (:kind::text is null or kind = :kind) and (:subject::text is null or subject = :subject)
   and (not :late::boolean or (late > 0 and accepted_at is null and state = 'failed'))
 order by ended_at desc, id desc limit :count::int
