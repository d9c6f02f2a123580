-- One at a time: a second one that raised by what it had read before would lower what the first has raised since.
select pg_advisory_xact_lock(hashtext('holdfast.position'))
