-- Notes that are older than the history is kept.
delete from holdfast_schedule_note where noted_at < :before and number in (
    select n.number from holdfast_schedule_note n where n.noted_at < :before limit :limit) returning noted_at
