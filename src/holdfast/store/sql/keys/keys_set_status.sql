-- Another text for the same status, if it is still the one that was read.
update holdfast.instance set status = :new where id = :a and status = :old
