-- Leases that end far in the future: if their worker died now, no other would take over for a long time.
select m.id, m.queue, coalesce(w.name, 'worker ' || l.worker::text), l.until
  from holdfast.lease l join holdfast.message m on m.seq = l.seq left join holdfast.worker w on w.id = l.worker
 where l.until > :after::timestamptz order by l.until desc limit :limit::int
