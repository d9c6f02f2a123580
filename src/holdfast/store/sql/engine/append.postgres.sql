-- Store new messages. Answers the duplicates: number in the call (from 1), id of the first.
select n, id from holdfast.append(
    :id::uuid[], :type::text[], :body::text[], :stream::text[], :subject::text[], :headers::text[], :dedupe::text[],
    :due::timestamptz[], :delay::float8[], :deadline::timestamptz[], :queue::text[], :status::int[],
    :kept::int[], :place::boolean, :now::timestamptz)
