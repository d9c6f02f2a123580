select id, kind, variant, type, stream, subject, state, reason, created_at, deadline, soft_at, told_at, ended_at, timed_out_at
  from holdfast_request where next_at < :now order by next_at, id limit :count
