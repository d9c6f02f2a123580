-- An episode begins. No row: somebody else has begun it.
insert into holdfast_alert (name, subject, version, episode, since, value, peak)
values (:name, :subject, 1, 0, :since, :value, :peak) on conflict (name, subject) do nothing returning version
