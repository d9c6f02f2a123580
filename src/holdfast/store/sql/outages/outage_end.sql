-- An outage is over: its summary is kept with it. No row: another process was faster.
update holdfast.outage
   set version = version + 1, ended_at = :ended_at::timestamptz, calm_since = null, oldest_at = :oldest_at::timestamptz,
       handled = :handled::bigint, died = :died::bigint, late_mean = :late_mean::float8, late_max = :late_max::float8,
       caught_up_at = :caught_up_at::timestamptz
 where number = :number::bigint and version = :version::bigint and ended_at is null returning number
