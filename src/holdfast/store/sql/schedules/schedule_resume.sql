-- A schedule fires again; also one that had an error.
update holdfast.schedule set paused_at = null, paused_why = null, error = null where name = :name returning name
