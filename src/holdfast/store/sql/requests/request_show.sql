select id, kind, variant, type, stream, subject, state, reason, created_at, deadline, soft_at, told_at, ended_at, timed_out_at,
       body, result, received_at, accepted_at, accepted_by, results, late
  from holdfast.request where id = :id::uuid
