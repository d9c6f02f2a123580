-- Another text for the same result, if it is still the one that was read.
update holdfast.instance set result = :new where id = :a and result = :old
