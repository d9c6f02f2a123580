-- A schedule gets its error and no next time. No counter is raised, so an absurd number in the row cannot make this fail.
update holdfast.schedule set error = :error, next_at = null where name = :name and version = :version::int
