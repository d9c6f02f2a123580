-- All breakers, each with the time; what is the engine's own is none.
select coalesce(:now::timestamptz, clock_timestamp()), b.name, b.version, b.era, b.state, b.forced, b.calls, b.trials_left,
       b.successes, b.opened_at, b.until, b.changed_at, b.why
  from holdfast.breaker b where b.name not like 'holdfast/%' order by b.name limit :limit
