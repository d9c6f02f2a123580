-- Which sinks have the news, and when it is tried again, or that it has ended. Changes nothing if another process has
-- it by now.
update holdfast.alert_news set told = :told::text, error = :error::text, try_at = :until::timestamptz, ended_at = :ended::timestamptz
 where number = :number and tries = :tries::int and ended_at is null returning number
