-- SQLite has no such functions.
select 0, '' where 0
