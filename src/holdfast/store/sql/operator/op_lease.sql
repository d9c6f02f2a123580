-- The lease that covers a message: its own, or that of the head of its stream if it was handed out with it. Asked in a
-- statement of its own, when the rows are locked. No row: it is not leased.
select l.seq, l.epoch, l.until, l.until >= :now,
       coalesce(w.name, 'worker ' || l.worker::text), (select m.id from holdfast.message m where m.seq = l.seq)
  from holdfast.lease l left join holdfast.worker w on w.id = l.worker
 where l.seq = :seq or (l.seq = :first::bigint and l.run_end >= :position::bigint)
 limit 1
