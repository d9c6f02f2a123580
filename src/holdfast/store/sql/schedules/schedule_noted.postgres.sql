-- The occurrences that were left out, a row for each range.
insert into holdfast.schedule_note (name, noted_at, first_key, last_key, count, why)
select r.name, coalesce(:now::timestamptz, clock_timestamp()), r.first_key, r.last_key, r.count, r.why
  from json_to_recordset(:rows::json) r (name text, first_key text, last_key text, count bigint, why text)
