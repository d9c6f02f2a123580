-- News of alerts that were sent before a moment, a batch of them.
delete from holdfast.alert_news where number = any (array(
    select number from holdfast.alert_news where ended_at < :before::timestamptz limit :limit::int)) returning 1
