-- The version that an event stream is at.
select version from holdfast_event_stream where name = :stream
