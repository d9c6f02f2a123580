-- The newest zone data that a running process has, and the newest that any had.
select (select max(z.version) from holdfast.zone_data z where z.seen_at > :since), (select max(z.version) from holdfast.zone_data z)
