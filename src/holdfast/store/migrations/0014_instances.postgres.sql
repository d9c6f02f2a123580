-- What instances of orchestrations are found by, and when those that have ended may be removed.
alter table holdfast.instance add column attributes text;   -- JSON: names and short texts, never sealed
create index instance_attributes on holdfast.instance using gin ((attributes::jsonb) jsonb_path_ops)
    where attributes is not null;
create index instance_ended on holdfast.instance (ended_at) where ended_at is not null;
