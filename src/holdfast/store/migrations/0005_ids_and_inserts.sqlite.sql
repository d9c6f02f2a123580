-- What PostgreSQL's types refuse must be refused here as well: a plain INSERT that no worker can read would stop
-- everybody who shares its queue. The engine's own messages come by here too, and are never out of these bounds.
create trigger holdfast_message_check before insert on holdfast_message when new.queue is null and new.xact is null
begin
    select raise(abort, 'holdfast: the id of a message must be a UUID, as text')
     where typeof(new.id) <> 'text' or new.id not glob '????????-????-????-????-????????????'
        or length(replace(new.id, '-', '')) <> 32 or replace(new.id, '-', '') glob '*[^0-9a-fA-F]*';
    select raise(abort, 'holdfast: times of a message must be microseconds since 1970, as integers, in the years 1 to 9999')
     where typeof(new.claimable_at) <> 'integer' or typeof(new.created_at) <> 'integer'
        or typeof(coalesce(new.due_at, 0)) <> 'integer' or typeof(coalesce(new.deadline, 0)) <> 'integer'
        or max(new.claimable_at, new.created_at, coalesce(new.due_at, 0), coalesce(new.deadline, 0)) >= 253402300800000000
        or min(new.claimable_at, new.created_at, coalesce(new.due_at, 0), coalesce(new.deadline, 0)) < -62135596800000000;
end;
