update holdfast_request as r
   set results = r.results + (x.value ->> 'results'), late = r.late + (x.value ->> 'late'),
       state = coalesce(x.value ->> 'state', r.state), reason = coalesce(x.value ->> 'reason', r.reason),
       ended_at = coalesce(x.value ->> 'ended_at', r.ended_at),
       timed_out_at = coalesce(x.value ->> 'timed_out_at', r.timed_out_at),
       result = coalesce(x.value ->> 'result', r.result), received_at = coalesce(x.value ->> 'received_at', r.received_at),
       next_at = case when x.value ->> 'state' is null then r.next_at end
  from json_each(:rows) x
 where r.id = x.value ->> 'id'
