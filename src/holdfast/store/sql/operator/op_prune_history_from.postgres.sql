-- The first page of the history with a row from before a moment, and when that one ended.
select (ctid::text::point)[0]::bigint, ended_at from holdfast.history where ended_at < :before::timestamptz limit 1
