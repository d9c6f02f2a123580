-- An episode begins. No row: another process has begun it.
insert into holdfast.alert (name, subject, version, episode, since, value, peak)
values (:name, :subject, 1, 0, :since::timestamptz, :value::float8, :peak::float8)
    on conflict (name, subject) do nothing returning version
