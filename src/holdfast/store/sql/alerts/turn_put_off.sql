-- The turn took long, so the next one comes later.
update holdfast.turn set next_at = :until::timestamptz where name = :name and next_at < :until::timestamptz
