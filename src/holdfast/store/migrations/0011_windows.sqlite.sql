-- Dedupe keys may have a window of their own, in seconds, counted from the end of their message. One index for each way to
-- look for those whose window is over.

alter table holdfast_dedupe add column kept integer;   -- null: as long as the setting `dedupe` says

drop index holdfast_dedupe_ended;
create index holdfast_dedupe_ended on holdfast_dedupe (ended_at) where ended_at is not null and kept is null;
create index holdfast_dedupe_window on holdfast_dedupe (kept, ended_at) where ended_at is not null and kept is not null;
