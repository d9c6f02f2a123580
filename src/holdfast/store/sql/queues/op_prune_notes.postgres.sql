-- Notes that are older than the history is kept.
delete from holdfast.schedule_note where noted_at < :before::timestamptz and number in (
    select n.number from holdfast.schedule_note n where n.noted_at < :before::timestamptz limit :limit::int) returning noted_at
