-- Whether one of these ids is taken, and by what.
select id, goes_to, state, seq from holdfast.ids_taken(:ids::uuid[], :types::text[], :queues::text[], :keys::text[],
    :ending::bigint[], :now::timestamptz)
