-- The queue is claimed from again. No row: it was not paused.
update holdfast.queue set paused_at = null, paused_why = null where name = :name and paused_at is not null returning name
