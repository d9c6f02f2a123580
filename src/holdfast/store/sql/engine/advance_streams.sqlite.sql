-- Count out what left the order of each stream [queue, stream, removed, start, halt]; a dead head may halt it.
update holdfast_stream
   set open = open - x.removed, halted_by = coalesce(halted_by, x.halt),
       halted_at = coalesce(halted_at, case when x.halt is not null then :now end)
  from (select json_extract(value, '$[0]') as queue, json_extract(value, '$[1]') as stream,
               json_extract(value, '$[2]') as removed, json_extract(value, '$[4]') as halt
          from json_each(:streams)) x
 where holdfast_stream.queue = x.queue and holdfast_stream.name = x.stream
