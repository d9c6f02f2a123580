-- SQLite has no such limits: a connection waits as long as busy_timeout says.
select '', 0 where 0
