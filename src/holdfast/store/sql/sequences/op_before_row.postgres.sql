-- Hold the rows of streams, sorted. A position that was guessed before is no longer valid.
update holdfast.stream s set last = null
  from (select x.queue, x.name from unnest(:queues::text[], :streams::text[]) u (queue, name)
          join holdfast.stream x on x.queue = u.queue and x.name = u.name order by x.queue, x.name for update of x) o
 where s.queue = o.queue and s.name = o.name
