-- Another text for the same body, if it is still the one that was read.
update holdfast.request set body = :new where id = :a::uuid and body = :old
