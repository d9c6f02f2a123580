-- News of alerts that were sent before a moment, a batch of them.
delete from holdfast_alert_news where number in (
    select number from holdfast_alert_news where ended_at < :before limit :limit) returning 1
