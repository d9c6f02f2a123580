-- One event at the end of its stream.
insert into holdfast_event (stream, version, id, type, subject, created_at, headers, body)
values (:stream, :version, :id, :type, :subject, :now, :headers, :body)
