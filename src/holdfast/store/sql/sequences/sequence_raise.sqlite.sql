-- A sequence continues after a number. It is never lowered.
update sqlite_sequence set seq = :value where name = :sequence and seq < :value
