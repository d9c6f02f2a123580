-- The journals of instances that are gone.
delete from holdfast.journal where id = any (:ids::text[])
