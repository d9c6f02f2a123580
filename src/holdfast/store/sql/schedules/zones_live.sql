-- The versions of the zone data that processes had since a moment.
select z.version from holdfast.zone_data z where z.seen_at > :since order by z.version
