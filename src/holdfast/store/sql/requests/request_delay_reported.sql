update holdfast.request set told_at = :at::timestamptz, next_at = deadline where id = any (:ids::uuid[]) and state = 'open'
