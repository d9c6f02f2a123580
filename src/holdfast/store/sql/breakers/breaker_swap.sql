-- The new row, if the version is still the one that was read. No row: another process was faster.
insert into holdfast.breaker as b (name, version, era, state, forced, calls, trials_left, successes, opened_at, until,
                                   changed_at, why)
values (:name, :version::bigint + 1, :era, :state, :forced, :calls, :trials_left, :successes, :opened_at::timestamptz,
        :until::timestamptz, :changed_at::timestamptz, :why)
    on conflict (name) do update set
       version = excluded.version, era = excluded.era, state = excluded.state, forced = excluded.forced,
       calls = excluded.calls, trials_left = excluded.trials_left, successes = excluded.successes,
       opened_at = excluded.opened_at, until = excluded.until, changed_at = excluded.changed_at, why = excluded.why
     where b.version = :version::bigint
returning version
