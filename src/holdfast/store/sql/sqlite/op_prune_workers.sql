-- Workers that were not seen since a moment and hold nothing.
delete from holdfast_worker where seen_at < :before
   and not exists (select 1 from holdfast_lease l where l.worker = holdfast_worker.id) returning 1
