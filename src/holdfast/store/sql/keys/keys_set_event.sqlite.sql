-- Another text for the same body, if it is still the one that was read.
update holdfast_event set body = :new where stream = :a and version = :b and body = :old
