-- Another text for the same body, if it is still the one that was read.
update holdfast_death set body = :new where id = :a and queue = :b and died_at = :c and seq = :d and body = :old
