-- The audit from before a moment, a batch of it.
delete from holdfast_audit where number in (
    select number from holdfast_audit where at < :before limit :limit) returning 1
