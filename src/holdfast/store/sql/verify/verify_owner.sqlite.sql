-- SQLite has no functions of its own that others could call.
select 0, '' where 0
