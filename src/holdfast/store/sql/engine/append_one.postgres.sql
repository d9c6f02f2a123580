-- Store one message. Nothing is answered, not even an empty column that the driver would have to read.
select where holdfast.append_one(:id::uuid, :type::text, :body::text, :stream::text, :subject::text, :headers::text,
    :now::timestamptz) is null
