-- An episode continues, if it is still the one that was read.
update holdfast.alert set version = version + 1, value = :value::float8, peak = :peak::float8, calm_since = :calm_since::timestamptz
 where name = :name and subject = :subject and version = :version::bigint and episode = :number::bigint returning version
