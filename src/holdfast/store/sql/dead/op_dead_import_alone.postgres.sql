-- One import at a time: two would both see that a letter is not here, and store it under different numbers.
select pg_advisory_xact_lock(hashtext('holdfast.import'))
