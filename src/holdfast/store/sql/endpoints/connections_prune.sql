-- Remove the connections of workers that were removed.
delete from holdfast.connection where worker not in (select w.id from holdfast.worker w) returning 1
