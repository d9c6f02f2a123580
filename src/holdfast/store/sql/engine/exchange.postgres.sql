-- One turn of a worker; the first row is about the turn, the others are work.
select * from holdfast.exchange(
    :worker::bigint, :seq::bigint[], :run::bigint[], :epoch::int[], :ran::int[], :other::json, :move_from::bigint[],
    :move_to::bigint[], :emits::json, :deltas::json, :keep::int, :queue::text[], :heads::int[], :after_at::timestamptz[],
    :after_seq::bigint[], :total::int, :lease::float8, :runs::int[], :bytes::bigint, :suspects::boolean,
    :peek::boolean, :asleep::boolean, :family::text[], :family_after::text[], :family_count::int[], :without::text[],
    :now::timestamptz)
