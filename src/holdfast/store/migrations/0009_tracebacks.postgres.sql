-- The last traceback of a message that failed: masked, at most 8 KiB. Without a default, so that no row is written again.
alter table holdfast.message add column traceback text collate "C";
alter table holdfast.dead add column traceback text collate "C";
