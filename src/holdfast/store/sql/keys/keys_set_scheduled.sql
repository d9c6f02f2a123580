-- Another text for the same body, if it is still the one that was read.
update holdfast.scheduled set body = :new where seq = :a::bigint and body = :old
