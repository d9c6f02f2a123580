-- Outages, the newest first.
select number, cause, began_at, noticed_at, down_since, back_at, oldest_at, calm_since, ended_at, version, handled, died,
       late_mean, late_max, caught_up_at
  from holdfast.outage where :number::bigint is null or number = :number::bigint order by number desc limit :limit::int
