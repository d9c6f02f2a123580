-- Leases that end so far ahead that nobody would take over for ages if their worker died now.
select m.id, m.queue, coalesce(w.name, 'worker ' || l.worker), l.until
  from holdfast_lease l join holdfast_message m on m.seq = l.seq left join holdfast_worker w on w.id = l.worker
 where l.until > :after order by l.until desc limit :limit
