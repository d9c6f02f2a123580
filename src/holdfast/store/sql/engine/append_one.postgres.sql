-- Store one message. Returns no rows: even an empty column would cost the driver time.
select where holdfast.append_one(:id::uuid, :type::text, :body::text, :stream::text, :subject::text, :headers::text,
    :now::timestamptz) is null
