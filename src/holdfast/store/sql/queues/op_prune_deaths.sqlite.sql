-- Deaths from before a moment whose message is neither dead nor pending, a batch of them.
delete from holdfast_death where (id, queue, died_at, seq) in (
    select x.id, x.queue, x.died_at, x.seq from holdfast_death x
     where x.died_at < :before
       and not exists (select 1 from holdfast_dead d where d.id = x.id and d.queue = x.queue)
       and not exists (select 1 from holdfast_message m where m.id = x.id and m.queue = x.queue)
     limit :limit) returning 1
