-- Another text for the same row, if it is still the one that was read.
update holdfast.journal set body = :new
 where id = :a and execution = :b::int and turn = :c::int and part = :d::int and body = :old
