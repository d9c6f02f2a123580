select holdfast.request_open(:id::uuid, :kind::text, :variant::text, :type::text, :stream::text, :subject::text, :body::text,
       :created_at::timestamptz, :deadline::timestamptz, :soft_at::timestamptz, :next_at::timestamptz)
