-- The last traceback of a message that failed: masked, at most 8 KiB. Without a default, so that no row is written again.
alter table holdfast_message add column traceback text;
alter table holdfast_dead add column traceback text;

-- It is a column of the engine: an INSERT of a producer cannot set it.
create trigger holdfast_message_traceback before insert on holdfast_message
    when new.plain is not null and new.traceback is not null
begin
    select raise(abort, 'holdfast: the engine''s own columns of a message cannot be set: leave out traceback');
end;
