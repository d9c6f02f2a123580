-- A signal after the start of an instance does not overtake those from before it, and those are passed on at the start.
create trigger holdfast_instance_begun after insert on holdfast_instance
begin
    update holdfast_message set claimable_at = new.started_at, epoch = min(epoch, 2147483646) + 1
     where queue = 'holdfast/signals' and stream = new.id and head and position is not null
       and claimable_at > new.started_at and claimable_at < 9223372036854775807
       and not exists (select 1 from holdfast_lease l where l.seq = holdfast_message.seq);
end;
drop trigger holdfast_signal_orchestration_insert;
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
    -- Before the start nobody knows the version: the signal waits for the start, for 7 days, and later ones behind it.
    insert into holdfast_told (id, queue, type, body, deadline)
    select new.id, case when w.waits then 'holdfast/signals' else w.queue end, 'holdfast.signal',
           json_object('name', '' || new.name, 'body', '' || new.body),
           case when w.waits then cast((julianday('now') - 2440587.5) * 86400000000 as integer) + 7 * 86400000000 end
      from (select i.queue, i.id is null or exists (
                       select 1 from holdfast_message m
                        where m.queue = 'holdfast/signals' and m.stream = new.id and m.head and m.position is not null) as waits
              from (select 1) left join holdfast_instance i on i.id = new.id) w;
end;
