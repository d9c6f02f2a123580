-- The next leases by the number of their message, and what is wrong with each of them. One snapshot with the messages.
select l.seq, m.id, m.queue,
       case when m.seq is null then 'orphaned' when not m.head then 'headless'
            when l.epoch::bigint <> m.epoch::bigint + 1::bigint then 'fenced'
            when m.position is not null and l.run_end < m.position then 'ended' end
  from (select * from holdfast.lease where seq > :after::bigint order by seq limit :limit::int) l
  left join holdfast.message m on m.seq = l.seq
 order by l.seq
