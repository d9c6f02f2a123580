-- Streams whose count of messages in their order differs from its messages. One snapshot, so that nothing changes in
-- between.
select s.queue, s.name, s.open, (select count(*) from holdfast.message m
                                  where m.queue = s.queue and m.stream = s.name and m.position is not null) as found
  from holdfast.stream s
 where s.open <> (select count(*) from holdfast.message m
                   where m.queue = s.queue and m.stream = s.name and m.position is not null)
 union all
select m.queue, m.stream, 0, count(*) from holdfast.message m
 where m.position is not null
   and not exists (select 1 from holdfast.stream s where s.queue = m.queue and s.name = m.stream)
 group by m.queue, m.stream
 order by 1, 2 limit :limit::int
