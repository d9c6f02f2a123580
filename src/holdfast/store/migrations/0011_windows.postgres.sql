-- Dedupe keys may have a window of their own, in seconds, counted from the end of their message. One index for each way to
-- look for those whose window is over.

alter table holdfast.dedupe add column kept int;   -- null: as long as the setting `dedupe` says

drop index holdfast.dedupe_ended;
create index dedupe_ended on holdfast.dedupe (ended_at) where ended_at is not null and kept is null;
create index dedupe_window on holdfast.dedupe (kept, ended_at) where ended_at is not null and kept is not null;
