-- A schedule gets its error and no next time. Nothing is counted up: an absurd number in the row cannot prevent it.
update holdfast.schedule set error = :error, next_at = null where name = :name and version = :version::int
