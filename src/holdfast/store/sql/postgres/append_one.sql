-- Store one message.
select holdfast.append_one(:id::uuid, :type::text, :body::text, :stream::text, :subject::text, :headers::text,
    :due::timestamptz, :delay::float8, :deadline::timestamptz, :queue::text, :now::timestamptz)
