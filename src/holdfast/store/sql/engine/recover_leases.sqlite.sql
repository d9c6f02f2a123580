-- Leases that their holder will not end: expired ones, or those of one worker except the ones it still knows.
select l.seq, l.run_end, coalesce(w.stopping, 0), m.queue, m.stream, m.position
  from holdfast_lease l left join holdfast_worker w on w.id = l.worker left join holdfast_message m on m.seq = l.seq
 where case when :worker is null then l.until < :now
            else l.worker = :worker and l.seq not in (select value from json_each(:known)) end
 limit :count
