-- The decisions of a tick about schedules, for those that are unchanged: a list of name, version, next key and time,
-- last key, time and id, how many fired and were left out, zone data, error.
update holdfast_schedule as s
   set version = s.version + 1, next_key = r.value ->> 2, next_at = r.value ->> 3, last_key = r.value ->> 4,
       last_at = coalesce(r.value ->> 5, s.last_at), last_id = coalesce(r.value ->> 6, s.last_id),
       fired = s.fired + (r.value ->> 7), left_out = s.left_out + (r.value ->> 8), zones = r.value ->> 9, error = r.value ->> 10
  from json_each(:rows) r
 where s.name = r.value ->> 0 and s.version = r.value ->> 1
returning name
