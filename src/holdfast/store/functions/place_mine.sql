-- At commit: the first firing places everything of the transaction, the others find nothing left to do. Most
-- transactions publish one message (`append_one` has told), which is placed here for half of what `place` costs.
create or replace function holdfast.place_mine() returns trigger
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    v_now timestamptz := coalesce(nullif(current_setting('holdfast.now', true), '')::timestamptz, clock_timestamp());
    v_first boolean;
begin
    if current_setting('holdfast.unplaced', true) = 'one' and current_setting('transaction_isolation') = 'read committed' then
        insert into holdfast.stream as s (queue, name, open) values (new.queue, new.stream, 1)
            on conflict (queue, name) do update set open = s.open + 1
        returning s.open = 1 and s.halted_by is null into v_first;
        -- step: placed_stream
        update holdfast.message m
           set position = nextval('holdfast.position'), head = v_first, xact = null,
               claimable_at = greatest(m.claimable_at, v_now)
         where m.seq = new.seq and m.xact = pg_current_xact_id() and m.queue = new.queue and m.stream = new.stream;
        if found then
            return null;
        end if;
        -- Somebody has deleted or changed it, or reset all settings: what was told is not so.
        update holdfast.stream s set open = s.open - 1 where s.queue = new.queue and s.name = new.stream;
    end if;
    if exists (select from holdfast.message m where m.xact = pg_current_xact_id()) then
        perform holdfast.place(pg_current_xact_id(), v_now);
    end if;
    return null;
end
$$;
