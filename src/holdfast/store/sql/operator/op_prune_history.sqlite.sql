-- Rows of the history from before a moment, a batch of them.
delete from holdfast_history where rowid in (
    select rowid from holdfast_history where ended_at < :before limit :limit) returning 1
