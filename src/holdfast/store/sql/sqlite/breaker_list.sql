-- All breakers, each with the time; what is the engine's own is none.
select :now, b.name, b.version, b.era, b.state, b.forced, b.calls, b.trials_left,
       b.successes, b.opened_at, b.until, b.changed_at, b.why
  from holdfast_breaker b where b.name not like 'holdfast/%' order by b.name limit :limit
