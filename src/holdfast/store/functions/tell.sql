-- One line of history for a message that has ended, and the end of its dedupe key's hold.
create or replace function holdfast.tell(m holdfast.message, p_outcome text, p_now timestamptz, p_ran int)
returns void language plpgsql as $$
begin
    insert into holdfast.history (ended_at, started_at, due_at, id, status, attempts, failures, outcome, queue, type,
                                  stream, subject)
    values (p_now, case when p_ran is not null then p_now - p_ran * interval '1 millisecond' end,
            coalesce(m.due_at, m.created_at), m.id, m.status, m.attempts, m.failures, p_outcome,
            coalesce(m.queue, ''), m.type, m.stream, m.subject);
    if m.dedupe is not null then
        if p_outcome = 'discarded' then
            delete from holdfast.dedupe d where d.scope = m.type and d.key = m.dedupe and d.id = m.id;
        else
            update holdfast.dedupe d set ended_at = p_now where d.scope = m.type and d.key = m.dedupe;
        end if;
    end if;
end
$$;
