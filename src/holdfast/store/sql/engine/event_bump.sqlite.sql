-- Increment the version of an event stream.
insert into holdfast_event_stream (name, version) values (:stream, :version)
    on conflict (name) do update set version = excluded.version
