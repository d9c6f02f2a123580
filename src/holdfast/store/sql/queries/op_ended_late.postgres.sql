 and d.started_at - d.due_at > make_interval(secs => :late::float8)
