-- An episode is over, if it is still the one that was read. No row: another process has ended it.
delete from holdfast.alert where name = :name and subject = :subject and version = :version::bigint and episode = :number::bigint
returning version
