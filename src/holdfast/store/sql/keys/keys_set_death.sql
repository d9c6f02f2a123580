-- Another text for the same body, if it is still the one that was read.
update holdfast.death set body = :new where id = :a::uuid and queue = :b and died_at = :c::timestamptz and seq = :d::bigint and body = :old
