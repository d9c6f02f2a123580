-- An outage continues: a worker is back, it is calm, or calm no longer. No row: another process was faster.
update holdfast.outage set version = version + 1, back_at = :back_at::timestamptz, calm_since = :calm_since::timestamptz
 where number = :number::bigint and version = :version::bigint and ended_at is null returning number
