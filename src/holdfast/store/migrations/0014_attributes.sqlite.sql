-- What instances of orchestrations are found by, and when those that have ended may be removed.
alter table holdfast_instance add column attributes text;   -- JSON: names and short texts, never sealed
create index holdfast_instance_ended on holdfast_instance (ended_at) where ended_at is not null;
