-- One event at the end of its stream: the new version and true, or the version found and false.
select version, stored from holdfast.append_event(:stream, :id::uuid, :type, :subject, :headers, :body, :expect::bigint,
                                                  false, :now::timestamptz)
