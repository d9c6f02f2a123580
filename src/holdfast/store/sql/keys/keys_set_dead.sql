-- Another text for the same body, if it is still the one that was read.
update holdfast.dead set body = :new where id = :a::uuid and queue = :b and seq = :c::bigint and body = :old
