-- The connections of workers that are forgotten.
delete from holdfast.connection where worker not in (select w.id from holdfast.worker w) returning 1
