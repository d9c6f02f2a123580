update holdfast_request set deadline = :deadline, soft_at = :soft_at, next_at = :next_at
 where id = :id and state = 'open'
