-- What a tick decided about schedules, for those that are as it saw them.
update holdfast_schedule as s
   set version = s.version + 1, next_key = r.value ->> 'next_key', next_at = r.value ->> 'next_at',
       last_key = r.value ->> 'last_key', last_at = coalesce(r.value ->> 'last_at', s.last_at),
       last_id = coalesce(r.value ->> 'last_id', s.last_id), fired = s.fired + (r.value ->> 'fired'),
       left_out = s.left_out + (r.value ->> 'left_out'), zones = r.value ->> 'zones', error = r.value ->> 'error'
  from json_each(:rows) r
 where s.name = r.value ->> 'name' and s.version = r.value ->> 'version'
returning name
