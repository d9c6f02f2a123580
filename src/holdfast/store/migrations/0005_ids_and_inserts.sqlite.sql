-- What PostgreSQL's types refuse must be refused here as well: a plain INSERT that no worker can read would stop
-- everybody who shares its queue.
create trigger holdfast_message_check before insert on holdfast_message when new.queue is null and new.xact is null
begin
    select raise(abort, 'holdfast: the id of a message must be a UUID in lower case, as text')
     where new.id not glob '????????-????-????-????-????????????' or length(replace(new.id, '-', '')) <> 32
        or replace(new.id, '-', '') glob '*[^0-9a-f]*' or typeof(new.id) <> 'text';
    select raise(abort, 'holdfast: times of a message must be microseconds since 1970, as integers')
     where typeof(new.claimable_at) <> 'integer' or typeof(new.created_at) <> 'integer'
        or typeof(coalesce(new.due_at, 0)) <> 'integer' or typeof(coalesce(new.deadline, 0)) <> 'integer'
        or max(new.claimable_at, new.created_at, coalesce(new.due_at, 0), coalesce(new.deadline, 0)) > 253402214400000000
        or min(new.claimable_at, new.created_at, coalesce(new.due_at, 0), coalesce(new.deadline, 0)) < -62135510400000000;
    select raise(abort, 'holdfast: the headers of a message must be a JSON object')
     where new.headers is not null and (not json_valid(new.headers) or json_type(new.headers) <> 'object');
end;
