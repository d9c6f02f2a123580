-- At commit. Most transactions publish one message, by `append_one`, which has guessed its position. If no other
-- message has come into the stream since, the guess holds, and a message behind others is not written again. Of
-- several, the first firing places all, and the others find nothing left to do.
create or replace function holdfast.place_mine() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    v_now timestamptz;
    v_first boolean; v_position bigint; v_told text;
begin
    if new.position is not null then
        -- Its guess may have been revoked, and somebody may have deleted or changed it. A stream's row that is new says
        -- nothing of those who were here before it was pruned.
        insert into holdfast.stream as s (queue, name, open, last)
        select m.queue, m.stream, 1, nextval('holdfast.position') from holdfast.message m
         where m.seq = new.seq and m.position = new.position and m.xact = pg_current_xact_id()
           and m.queue = new.queue and m.stream = new.stream
            on conflict (queue, name) do update
           set open = s.open + 1,
               last = case when s.last < new.position then new.position else nextval('holdfast.position') end
        returning s.open = 1 and s.halted_by is null, s.last, set_config('holdfast.unplaced', 'placed', true)
             into v_first, v_position, v_told;
        if v_position = new.position and not v_first then
            return null;
        end if;
    end if;
    v_now := coalesce(nullif(current_setting('holdfast.now', true), '')::timestamptz, clock_timestamp());
    if v_first is not null then
        -- step: placed_stream
        update holdfast.message m
           set position = v_position, head = v_first, xact = null, claimable_at = greatest(m.claimable_at, v_now)
         where m.seq = new.seq;
    elsif new.position is not null or current_setting('holdfast.unplaced', true) is distinct from 'placed' then
        update holdfast.message m set position = null
         where m.seq = new.seq and m.position = new.position and m.xact = pg_current_xact_id();
        perform holdfast.place(pg_current_xact_id(), v_now);
    end if;
    return null;
end
$$;
