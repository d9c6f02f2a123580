-- The decisions of a tick about schedules, for those that are unchanged.
update holdfast.schedule s
   set version = s.version + 1, next_key = r.next_key, next_at = r.next_at, last_key = r.last_key,
       last_at = coalesce(r.last_at, s.last_at), last_id = coalesce(r.last_id, s.last_id), fired = s.fired + r.fired,
       left_out = s.left_out + r.left_out, zones = r.zones, error = r.error
  from json_to_recordset(:rows::json) r (name text, version int, next_key text, next_at timestamptz, last_key text,
       last_at timestamptz, last_id uuid, fired bigint, left_out bigint, zones text, error text)
 where s.name = r.name and s.version = r.version
returning s.name
