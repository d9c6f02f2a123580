-- Deaths from before a moment whose message is neither dead nor pending, a batch of them.
delete from holdfast.death where (id, queue, died_at, seq) in (
    select x.id, x.queue, x.died_at, x.seq from holdfast.death x
     where x.died_at < :before::timestamptz
       and not exists (select 1 from holdfast.dead d where d.id = x.id and d.queue = x.queue)
       and not exists (select 1 from holdfast.message m where m.id = x.id and m.queue = x.queue)
       and not exists (select 1 from holdfast.scheduled s where s.id = x.id and s.queue = x.queue)
     limit :limit::int) returning 1
