-- Store one message that has neither dedupe key nor queue nor time in the caller's transaction: what `append` does, for
-- a third of the cost. Nothing is pinned or declared that is not needed: at once in a transaction, each setting and each
-- expression costs 4 us, `distinct` ten, and each statement 20 to 50; so what is not ordered has an insert of its own.
-- The only message of a transaction that waits for a place has a guess of its position, and remembers it in
-- `holdfast.unplaced` (guess_no_more): behind others, the commit writes nothing.
create or replace function holdfast.append_one(
    p_id uuid, p_type text, p_body text, p_stream text, p_subject text, p_headers text, p_now timestamptz)
returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_queue text; v_asleep boolean; v_ordered boolean; v_seen text[];
begin
    if p_now is not null then
        perform set_config('holdfast.now', p_now::text, true);
    end if;
    for v_queue, v_asleep, v_ordered in
        select s.queue, exists (select from holdfast.worker w where w.asleep and s.queue = any (w.queues)),
               p_stream is not null and coalesce((select q.ordered from holdfast.queue q where q.name = s.queue), true)
          from holdfast.subscription s where holdfast.covers(s.pattern, p_type)
    loop
        continue when v_queue = any (v_seen);
        v_seen := v_seen || v_queue;
        if v_ordered then
            if current_setting('holdfast.unplaced', true) not in ('', 'many', 'placed') then
                perform holdfast.guess_no_more();
            end if;
            -- step: append_one_ordered
            insert into holdfast.message (id, type, body, stream, subject, headers, claimable_at, created_at, queue, plain, head, xact, position)
            values (p_id, p_type, p_body, p_stream, p_subject, p_headers, v_now, v_now, v_queue, null, false, pg_current_xact_id(),
                    nullif(set_config('holdfast.unplaced',
                        case when coalesce(current_setting('holdfast.unplaced', true), '') in ('', 'placed')
                                  and current_setting('transaction_isolation') = 'read committed'
                             then nextval('holdfast.position')::text else 'many' end, true), 'many')::bigint);
        else
            -- step: append_one
            insert into holdfast.message (id, type, body, stream, subject, headers, claimable_at, created_at, queue, plain)
            values (p_id, p_type, p_body, p_stream, p_subject, p_headers, v_now, v_now, v_queue, null);
        end if;
        if v_asleep then
            perform pg_notify('holdfast', '');
        end if;
    end loop;
    if not found then
        insert into holdfast.message (id, type, body, stream, subject, headers, claimable_at, created_at, plain, head)
        values (p_id, p_type, p_body, p_stream, p_subject, p_headers, v_now, v_now, null, p_stream is null);
    end if;
end
$$;
