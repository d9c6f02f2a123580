-- Count out what left the order of streams and promote the next of each, as a settlement does.
select holdfast.advance(:queue::text[], :stream::text[], :removed::int[], :start::bigint[], null::text[], null::holdfast.draft[],
                        coalesce(:now::timestamptz, clock_timestamp()))
