-- Workers that were not seen since a moment and hold nothing, a batch of them.
delete from holdfast_worker where id in (
    select w.id from holdfast_worker w where w.seen_at < :before
       and not exists (select 1 from holdfast_lease l where l.worker = w.id) limit :limit) returning 1
