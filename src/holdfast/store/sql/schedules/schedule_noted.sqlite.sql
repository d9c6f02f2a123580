-- The occurrences that were left out, a row for each range.
insert into holdfast_schedule_note (name, noted_at, first_key, last_key, count, why)
select r.value ->> 'name', :now, r.value ->> 'first_key', r.value ->> 'last_key', r.value ->> 'count', r.value ->> 'why'
  from json_each(:rows) r
