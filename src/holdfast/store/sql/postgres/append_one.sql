-- Store one message. Nothing is answered, not even an empty column: that spares the caller 11 us.
select where holdfast.append_one(:id::uuid, :type::text, :body::text, :stream::text, :subject::text, :headers::text,
    :now::timestamptz) is null
