-- Streams with messages in the order before its head: they would never be promoted.
select h.queue, h.stream,
       (select count(*) from holdfast.message m
         where m.queue = h.queue and m.stream = h.stream and m.position < h.position)
  from holdfast.message h
 where h.head and h.position is not null
   and exists (select 1 from holdfast.message m where m.queue = h.queue and m.stream = h.stream and m.position < h.position)
 order by 1, 2 limit :limit::int
