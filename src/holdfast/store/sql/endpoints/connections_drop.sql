-- Remove the connections of a worker that ends.
delete from holdfast.connection where worker = :worker::bigint
