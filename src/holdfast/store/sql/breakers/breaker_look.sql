-- The time, and one breaker if it is known.
select :now, b.name, b.version, b.era, b.state, b.forced, b.calls, b.trials_left,
       b.successes, b.opened_at, b.until, b.changed_at, b.why
  from (select 1) one left join holdfast.breaker b on b.name = :name::text
