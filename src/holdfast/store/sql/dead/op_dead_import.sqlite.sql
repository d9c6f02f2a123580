-- Dead letters that come from a file. Those that are here already, dead or pending, are left alone. It is the same
-- message if id and time are the same: it may have another number since. One whose number another message has here gets
-- the next. Answers those stored.
insert into holdfast_dead (id, queue, seq, type, stream, position, subject, dedupe, status, epoch, attempts,
                           failures, vanished, refunds, redrives, reason, last_reason, worker, created_at, due_at,
                           deadline, died_at, fingerprint, held_at, held_why, errors, headers, body, stored_at, traceback)
select json_extract(value, '$.id'), json_extract(value, '$.queue'),
       case when exists (select 1 from holdfast_dead d where d.id = json_extract(value, '$.id')
                            and d.queue = json_extract(value, '$.queue') and d.seq = json_extract(value, '$.seq'))
            then (select max(d.seq) + 1 from holdfast_dead d where d.id = json_extract(value, '$.id')
                     and d.queue = json_extract(value, '$.queue')) else json_extract(value, '$.seq') end,
       json_extract(value, '$.type'), json_extract(value, '$.stream'), json_extract(value, '$.position'),
       json_extract(value, '$.subject'), json_extract(value, '$.dedupe'), json_extract(value, '$.status'),
       json_extract(value, '$.epoch'), json_extract(value, '$.attempts'), json_extract(value, '$.failures'),
       json_extract(value, '$.vanished'), json_extract(value, '$.refunds'), json_extract(value, '$.redrives'),
       json_extract(value, '$.reason'), json_extract(value, '$.last_reason'), json_extract(value, '$.worker'),
       json_extract(value, '$.created_at'), json_extract(value, '$.due_at'), json_extract(value, '$.deadline'),
       json_extract(value, '$.died_at'), json_extract(value, '$.fingerprint'), json_extract(value, '$.held_at'),
       json_extract(value, '$.held_why'), json_extract(value, '$.errors'), json_extract(value, '$.headers'),
       json_extract(value, '$.body'), :now, json_extract(value, '$.traceback')
  from json_each(:letters)
 where not exists (select 1 from holdfast_pending m where m.id = json_extract(value, '$.id')
                      and m.queue = json_extract(value, '$.queue') and coalesce(m.due_at, m.created_at)
                         = coalesce(json_extract(value, '$.due_at'), json_extract(value, '$.created_at')))
   and not exists (select 1 from holdfast_dead d where d.id = json_extract(value, '$.id')
                      and d.queue = json_extract(value, '$.queue') and coalesce(d.due_at, d.created_at)
                         = coalesce(json_extract(value, '$.due_at'), json_extract(value, '$.created_at')))
    on conflict (id, queue, seq) do nothing
returning id, queue, seq, coalesce(due_at, created_at)
