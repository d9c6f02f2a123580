-- What a plain INSERT scheduled (`receive`) leaves `message` as soon as it is stored, and waits in `scheduled`.
create or replace function holdfast.put_by_plain() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- step: put_by_plain
    with gone as (
        delete from holdfast.message m where m.seq = new.seq
        returning m.seq, m.claimable_at, m.created_at, m.due_at, m.deadline, m.id, m.queue, m.type, m.stream, m.subject, m.target,
                  m.headers, m.body)
    insert into holdfast.scheduled (seq, claimable_at, created_at, due_at, deadline, id, queue, type, stream, subject, target,
                                    headers, body)
    select g.seq, g.claimable_at, g.created_at, g.due_at, g.deadline, g.id, g.queue, g.type, g.stream, g.subject, g.target,
           g.headers, g.body
      from gone g;
    perform holdfast.wake_due(new.claimable_at, clock_timestamp());
    return null;
end
$$;
