-- Store one message.
select holdfast.append_one(:id::uuid, :type::text, :body::text, :stream::text, :subject::text, :headers::text,
    :now::timestamptz)
