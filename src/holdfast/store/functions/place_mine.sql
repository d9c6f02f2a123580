-- At commit: the first firing places everything of the transaction, the others find nothing left to do. Most
-- transactions publish one message (`append_one` has told), whose position was guessed. If the stream has got no higher
-- one since, the guess holds, and a message behind others is not written again.
create or replace function holdfast.place_mine() returns trigger
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    v_now timestamptz;
    v_first boolean; v_position bigint; v_told text;
begin
    -- Somebody may have deleted or changed it since, or reset all settings: then what was told is not so.
    insert into holdfast.stream as s (queue, name, open, last)
    select m.queue, m.stream, 1, m.position from holdfast.message m
     where m.seq = new.seq and m.position = new.position and m.xact = pg_current_xact_id()
       and m.queue = new.queue and m.stream = new.stream
       and new.position::text = current_setting('holdfast.unplaced', true)
       and current_setting('transaction_isolation') = 'read committed'
        on conflict (queue, name) do update
       set open = s.open + 1,
           last = case when s.last < excluded.last then excluded.last else nextval('holdfast.position') end
    returning s.open = 1 and s.halted_by is null, s.last, set_config('holdfast.unplaced', 'many', true)
         into v_first, v_position, v_told;
    if v_position = new.position and not v_first then
        return null;
    end if;
    v_now := coalesce(nullif(current_setting('holdfast.now', true), '')::timestamptz, clock_timestamp());
    if v_first is not null then
        -- step: placed_stream
        update holdfast.message m
           set position = v_position, head = v_first, xact = null, claimable_at = greatest(m.claimable_at, v_now)
         where m.seq = new.seq;
        return null;
    end if;
    update holdfast.message m set position = null
     where m.seq = new.seq and m.position = new.position and m.xact = pg_current_xact_id();
    if exists (select from holdfast.message m where m.xact = pg_current_xact_id() and m.position is null) then
        perform holdfast.place(pg_current_xact_id(), v_now);
    end if;
    return null;
end
$$;
