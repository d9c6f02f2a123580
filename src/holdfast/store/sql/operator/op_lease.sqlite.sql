-- The lease that covers a message: its own, or that of the head of its stream if it was handed out with it.
-- No row: nobody holds it.
select l.seq, l.epoch, l.until, l.until >= :now, coalesce(w.name, 'worker ' || l.worker),
       (select m.id from holdfast_message m where m.seq = l.seq)
  from holdfast_lease l left join holdfast_worker w on w.id = l.worker
 where l.seq = :seq or (l.seq = :first and l.run_end >= :position)
 limit 1
