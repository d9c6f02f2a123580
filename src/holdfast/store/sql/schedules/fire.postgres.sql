-- Store the messages of occurrences. See functions/fire.sql.
select id, queue from holdfast.fire(:id::uuid[], :type::text[], :body::text[], :stream::text[], :subject::text[], :headers::text[],
    :due::timestamptz[], :queue::text[], :now::timestamptz)
