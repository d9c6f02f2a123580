select holdfast.request_extend(:id::uuid, :deadline::timestamptz, :soft_at::timestamptz, :next_at::timestamptz)
