-- A row inserted by a plain SQL producer (`plain`), for all subscribers or for the one queue it names; or a message of
-- the engine's own that nobody has subscribed to yet.
create or replace function holdfast.receive() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    v_queues text[] := case when new.queue is null then array(select r.queue from holdfast.route(new.type) r (queue) order by 1)
                            else array[new.queue] end;
    v_plain boolean := new.plain;
begin
    new.position := null;  -- which only a commit can know
    if new.plain then
        perform holdfast.check_plain(new);
        new.plain := null; new.xact := null; new.head := true;
        new.seq := nextval(pg_get_serial_sequence('holdfast.message', 'seq'));  -- whatever number it was given
    end if;
    -- What no worker could read. The engine's own messages come by here as well, and are never out of these bounds.
    if least(new.claimable_at, new.created_at, new.due_at, new.deadline) < '0001-01-01 00:00:00+00' or
       greatest(new.claimable_at, new.created_at, new.due_at, new.deadline) >= '10000-01-01 00:00:00+00' then
        raise exception using errcode = 'datetime_field_overflow',
            message = 'holdfast: times of a message must be in the years 1 to 9999';
    end if;
    if v_plain and new.due_at > clock_timestamp() and (new.stream is not null or
       (cardinality(v_queues) = 0 and holdfast.is_later(null, new.due_at, clock_timestamp()))) then
        new.target := new.queue;
        new.queue := 'holdfast/timer';
        new.claimable_at := new.due_at;
        new.plain := false;  -- put_by_plain
        return new;
    end if;
    new.head := new.stream is null;
    new.claimable_at := greatest(new.claimable_at, coalesce(new.due_at, new.claimable_at));
    if cardinality(v_queues) = 0 then
        return new;
    end if;
    if v_plain and new.stream is null and holdfast.is_later(null, new.claimable_at, clock_timestamp()) then
        new.plain := false;  -- and the others
    end if;
    new.queue := v_queues[1];
    new.head := new.stream is null or not holdfast.keeps_order(new.queue);
    new.xact := case when not new.head then pg_current_xact_id() end;
    insert into holdfast.message (claimable_at, created_at, due_at, deadline, id, xact, status, head, queue, plain,
                                  type, stream, subject, dedupe, headers, body)
    select new.claimable_at, new.created_at, new.due_at, new.deadline, new.id,
           case when not h.head then pg_current_xact_id() end, new.status, h.head, q, new.plain,
           new.type, new.stream, new.subject, new.dedupe, new.headers, new.body
      from unnest(v_queues[2:]) q
     cross join lateral (select new.stream is null or not holdfast.keeps_order(q) as head) h;
    perform holdfast.guess_no_more();
    perform holdfast.nudge(v_queues);
    return new;
end
$$;
