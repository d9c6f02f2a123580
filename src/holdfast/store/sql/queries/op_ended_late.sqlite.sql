 and d.started_at - d.due_at > :late * 1000000
