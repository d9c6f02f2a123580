-- How many messages became dead letters within a time.
select count(*) from holdfast.death where died_at >= :since::timestamptz and died_at <= :until::timestamptz
