-- Another text for the same body, if it is still the one that was read.
update holdfast.schedule set body = :new where name = :a and body = :old
