update holdfast.request
   set state = 'completed', reason = null, result = :result::uuid, received_at = :received_at::timestamptz, accepted_at = :at::timestamptz,
       accepted_by = :who::text
 where id = :id::uuid and state = 'failed'
returning id
