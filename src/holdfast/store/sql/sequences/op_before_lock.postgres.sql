-- Hold the messages of some streams that are before their head.
select m.seq from unnest(:queues::text[], :streams::text[]) u (queue, stream)
  join holdfast.message h on h.queue = u.queue and h.stream = u.stream and h.head and h.position is not null
  join holdfast.message m on m.queue = h.queue and m.stream = h.stream and m.position < h.position
 order by m.seq for update of m
