-- Record that a process with this zone data is running.
insert into holdfast.zone_data as z (version, seen_at) values (:version, :now)
    on conflict (version) do update set seen_at = excluded.seen_at
