-- Start, signal and cancel orchestrations by plain SQL: an INSERT into one of three views, in the caller's transaction. What
-- the library's own calls refuse is refused here too. PostgreSQL has functions for it.
-- A message into the stream of an instance. Writers are serial, so it gets its place at once.
create view holdfast_told as select null as id, null as queue, null as type, null as body, null as deadline where false;
create trigger holdfast_told_insert instead of insert on holdfast_told
begin
    select raise(abort, 'holdfast: nothing was stored: a message must not have more than 1048576 bytes')
     where length(cast(new.body as blob)) > 1048576;
    insert into holdfast_message (queue, stream, type, body, deadline, head, xact, plain)
    values (new.queue, new.id, new.type, new.body, new.deadline, 0, 1, null);
    insert into holdfast_stream (queue, name, open) values (new.queue, new.id, 1)
        on conflict (queue, name) do update set open = open + 1;
    update holdfast_message
       set position = seq, xact = null,
           head = exists (select 1 from holdfast_stream s where s.queue = holdfast_message.queue
                             and s.name = holdfast_message.stream and s.open = 1 and s.halted_by is null)
     where xact = 1;
end;

create view holdfast_start_orchestration as
select null as orchestration, null as id, null as input, null as deadline, null as attributes where false;
create trigger holdfast_start_orchestration_insert instead of insert on holdfast_start_orchestration
begin
    select raise(abort, 'holdfast: nothing was started: no application has declared this orchestration; name it with its version, name@version')
     where new.orchestration is null or instr(new.orchestration, '@') = 0
        or not exists (select 1 from holdfast_queue q where q.name = new.orchestration);
    select raise(abort, 'holdfast: nothing was started: give an id of 1 to 300 characters, as text, without control characters and spaces around it')
      from (select new.id as name, 300 as longest) n
     where n.name is null or (length(n.name) not between 1 and n.longest or n.name <> trim(n.name) or typeof(n.name) <> 'text'
        or instr(cast(n.name as blob), x'00') > 0
        or n.name glob '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || char(8232) || '-' || char(8238)
                     || char(8294) || '-' || char(8297) || char(65279) || ']*');
    select raise(abort, 'holdfast: nothing was started: the input must be JSON, as text')
     where new.input is not null and (typeof(new.input) <> 'text' or not json_valid(new.input));
    select raise(abort, 'holdfast: nothing was started: the deadline must be microseconds since 1970, as an integer, in the years 1 to 9999')
     where new.deadline is not null and (typeof(new.deadline) <> 'integer' or new.deadline >= 253402300800000000
        or new.deadline < -62135596800000000);
    select raise(abort, 'holdfast: nothing was started: the attributes must be a JSON object with 20 names at most, as text')
     where new.attributes is not null and (case
           when typeof(new.attributes) <> 'text' or not json_valid(new.attributes) then true
           when json_type(new.attributes) <> 'object' then true
           else (select count(*) from json_each(new.attributes)) > 20 end);
    select raise(abort, 'holdfast: nothing was started: the name of an attribute is 1 to 60 letters, digits, _, . and -, and begins with a letter or _')
      from json_each(new.attributes) a
     where a.key not glob '[A-Za-z_]*' or a.key glob '*[^A-Za-z0-9_.-]*' or length(a.key) > 60;
    select raise(abort, 'holdfast: nothing was started: the value of an attribute must be a text of 1 to 200 characters, without control characters and spaces around it')
      from (select a.type, a.value as name, 200 as longest from json_each(new.attributes) a) n
     where n.type <> 'text' or (length(n.name) not between 1 and n.longest or n.name <> trim(n.name) or typeof(n.name) <> 'text'
        or instr(cast(n.name as blob), x'00') > 0
        or n.name glob '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || char(8232) || '-' || char(8238)
                     || char(8294) || '-' || char(8297) || char(65279) || ']*');
    select raise(abort, 'holdfast: nothing was started: an instance with this id exists already')
     where exists (select 1 from holdfast_instance i where i.id = new.id);
    insert into holdfast_told (id, queue, type, body)
    values (new.id, new.orchestration, 'holdfast.start',
            json_object('input', '' || new.input, 'deadline', new.deadline,
                        'attributes', case when new.attributes <> '{}' then json(new.attributes) end));
    insert into holdfast_instance (id, queue, start, mark, attributes, started_at)
    select new.id, new.orchestration, m.id, m.id, nullif(json(new.attributes), '{}'), m.created_at
      from holdfast_message m where m.seq = (select max(l.seq) from holdfast_message l);
end;

create view holdfast_signal_orchestration as select null as id, null as name, null as body where false;
create trigger holdfast_signal_orchestration_insert instead of insert on holdfast_signal_orchestration
begin
    select raise(abort, 'holdfast: nothing was stored: the id (1 to 300 characters) and the name (1 to 200) of a signal must be text, without control characters and spaces around them')
      from (select new.id as name, 300 as longest union all select new.name, 200) n
     where n.name is null or (length(n.name) not between 1 and n.longest or n.name <> trim(n.name) or typeof(n.name) <> 'text'
        or instr(cast(n.name as blob), x'00') > 0
        or n.name glob '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || char(8232) || '-' || char(8238)
                     || char(8294) || '-' || char(8297) || char(65279) || ']*');
    select raise(abort, 'holdfast: nothing was stored: the body of a signal must be JSON, as text')
     where new.body is not null and (typeof(new.body) <> 'text' or not json_valid(new.body));
    select raise(abort, 'holdfast: nothing was stored: the instance has ended, so the signal would reach nobody')
     where exists (select 1 from holdfast_instance i where i.id = new.id and i.ended_at is not null);
    -- Before the start nobody knows the version: the signal waits for the start, for 7 days.
    insert into holdfast_told (id, queue, type, body, deadline)
    select new.id, coalesce(i.queue, 'holdfast/signals'), 'holdfast.signal',
           json_object('name', '' || new.name, 'body', '' || new.body),
           case when i.id is null
                then cast((julianday('now') - 2440587.5) * 86400000000 as integer) + 7 * 86400000000 end
      from (select 1) left join holdfast_instance i on i.id = new.id;
end;

create view holdfast_cancel_orchestration as select null as id, null as why where false;
create trigger holdfast_cancel_orchestration_insert instead of insert on holdfast_cancel_orchestration
begin
    select raise(abort, 'holdfast: nothing was stored: there is no instance with this id that has not ended')
     where not exists (select 1 from holdfast_instance i where i.id = new.id and i.ended_at is null);
    select raise(abort, 'holdfast: nothing was stored: why must be text')
     where typeof(coalesce(new.why, '')) <> 'text';
    insert into holdfast_told (id, queue, type, body)
    select new.id, i.queue, 'holdfast.cancel', json_object('why', coalesce('' || new.why, ''))
      from holdfast_instance i where i.id = new.id;
end;
