-- Another text for the same body, if it is still the one that was read.
update holdfast.event set body = :new where stream = :a and version = :b::bigint and body = :old
