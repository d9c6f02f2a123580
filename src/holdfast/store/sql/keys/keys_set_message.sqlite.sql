-- Another text for the same body, if it is still the one that was read.
update holdfast_message set body = :new where seq = :a and body = :old
