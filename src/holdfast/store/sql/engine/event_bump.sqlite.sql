-- The event stream is one version further.
insert into holdfast_event_stream (name, version) values (:stream, :version)
    on conflict (name) do update set version = excluded.version
