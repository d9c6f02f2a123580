-- The messages that this transaction stored get their places.
select holdfast.place(pg_current_xact_id(), coalesce(:now::timestamptz, clock_timestamp()))
