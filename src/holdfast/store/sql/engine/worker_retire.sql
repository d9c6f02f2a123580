-- Remove a worker that holds nothing any more.
delete from holdfast.worker where id = :worker and not exists (select 1 from holdfast.lease l where l.worker = :worker)
