-- Streams that would never move again: messages in the order, no halt and no head. And halted ones with a head.
select s.queue, s.name, s.open, s.halted_by from holdfast.stream s
 where s.open > 0 and (s.halted_by is null) <> exists (
       select 1 from holdfast.message m where m.queue = s.queue and m.stream = s.name and m.head and m.position is not null)
 order by 1, 2 limit :limit::int
