-- Workers that were not seen since a moment and hold nothing.
delete from holdfast.worker w where w.seen_at < :before::timestamptz
   and not exists (select 1 from holdfast.lease l where l.worker = w.id) returning 1
