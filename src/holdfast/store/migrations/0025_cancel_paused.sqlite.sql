-- An instance that is paused tries once more when it is cancelled: a worker lets it, by a message of its own.
drop trigger holdfast_cancel_orchestration_insert;
create trigger holdfast_cancel_orchestration_insert instead of insert on holdfast_cancel_orchestration
begin
    select raise(abort, 'holdfast: nothing was stored: there is no instance with this id that has not ended')
     where not exists (select 1 from holdfast_instance i where i.id = new.id and i.ended_at is null);
    select raise(abort, 'holdfast: nothing was stored: why must be text')
     where typeof(coalesce(new.why, '')) <> 'text';
    insert into holdfast_told (id, queue, type, body)
    select new.id, i.queue, 'holdfast.cancel', json_object('why', coalesce('' || new.why, ''))
      from holdfast_instance i where i.id = new.id;
    insert into holdfast_message (queue, type, body, plain)
    select 'holdfast/signals', 'holdfast.resume', json_array(new.id), null
      from holdfast_instance i where i.id = new.id and i.state = 'paused';
end;
