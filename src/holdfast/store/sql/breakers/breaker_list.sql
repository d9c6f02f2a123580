-- All breakers, each with the time.
select :now, b.name, b.version, b.era, b.state, b.forced, b.calls, b.trials_left,
       b.successes, b.opened_at, b.until, b.changed_at, b.why
  from holdfast.breaker b order by b.name limit :limit
