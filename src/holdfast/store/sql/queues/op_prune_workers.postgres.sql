-- Workers that were not seen since a moment and hold nothing, a batch of them.
delete from holdfast.worker where id = any (array(
    select w.id from holdfast.worker w where w.seen_at < :before::timestamptz
       and not exists (select 1 from holdfast.lease l where l.worker = w.id) limit :limit::int)) returning 1
