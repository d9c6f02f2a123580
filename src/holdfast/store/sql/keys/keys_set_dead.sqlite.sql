-- Another text for the same body, if it is still the one that was read.
update holdfast_dead set body = :new where id = :a and queue = :b and seq = :c and body = :old
