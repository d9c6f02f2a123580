-- The next leases by the number of their message, and what is wrong with each of them. One snapshot with the messages.
select l.seq, m.id, m.queue,
       case when m.seq is null then 'orphaned' when not m.head then 'headless'
            when l.epoch <> m.epoch + 1 then 'fenced'
            when m.position is not null and l.run_end < m.position then 'ended' end
  from (select * from holdfast_lease where seq > :after order by seq limit :limit) l
  left join holdfast_message m on m.seq = l.seq
 order by l.seq
