-- One at a time: otherwise a second one, with what it read before, could lower a sequence that the first has raised.
select pg_advisory_xact_lock(hashtext('holdfast.position'))
