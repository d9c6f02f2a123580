-- The time in a subquery: the index needs one value.
select id, kind, variant, type, stream, subject, state, reason, created_at, deadline, soft_at, told_at, ended_at, timed_out_at
  from holdfast.request where next_at < (select coalesce(:now::timestamptz, clock_timestamp()))
 order by next_at, id limit :count for update skip locked
