-- Leases on messages of a queue, live ones first.
select l.until >= :now, l.until, coalesce(w.name, 'worker ' || l.worker::text), m.id
  from holdfast.lease l join holdfast.message m on m.seq = l.seq left join holdfast.worker w on w.id = l.worker
 where m.queue = :queue order by l.until desc limit 1
