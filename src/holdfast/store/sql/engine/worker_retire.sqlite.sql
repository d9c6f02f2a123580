-- A worker that holds nothing any more is forgotten.
delete from holdfast_worker where id = :worker and not exists (select 1 from holdfast_lease l where l.worker = :worker)
