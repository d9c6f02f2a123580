-- A sequence continues after a number. It is never lowered.
select setval(:sequence::bigint::oid::regclass, :value::bigint)
 where coalesce(pg_sequence_last_value(:sequence::bigint::oid::regclass), 0) < :value::bigint
