-- The audit from before a moment, a batch of it.
delete from holdfast.audit where number = any (array(
    select number from holdfast.audit where at < :before::timestamptz limit :limit::int)) returning 1
