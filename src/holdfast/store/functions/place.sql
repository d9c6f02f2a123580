-- Give the unplaced messages of one transaction their places, streams sorted, while the stream rows are held:
-- positions follow the order of commits. The rows are updated, not only locked: a producer with an older
-- snapshot then gets a serialization error instead of leaving its message behind.
create or replace function holdfast.place(p_xact xid8, p_now timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
begin
    perform set_config('holdfast.unplaced', 'placed', true);
    insert into holdfast.stream as s (queue, name, open)
    select m.queue, m.stream, count(*) from holdfast.message m
     where m.xact = p_xact and m.position is null group by m.queue, m.stream order by m.queue, m.stream
        on conflict (queue, name) do update set open = s.open + excluded.open, last = null;
    if current_setting('transaction_isolation') <> 'read committed' then
        perform holdfast.refuse_stale(array_agg(m.queue), array_agg(m.stream))
           from holdfast.message m where m.xact = p_xact and m.position is null;
    end if;
    -- step: placed_streams
    update holdfast.message m
       set position = o.position, head = o.first, xact = null, claimable_at = greatest(m.claimable_at, p_now)
      from (select x.seq, nextval('holdfast.position') as position,
                   x.nth = 1 and x.n = s.open and s.halted_by is null as first
              from (select u.seq, u.queue, u.stream,
                           row_number() over (partition by u.queue, u.stream order by u.seq) as nth,
                           count(*) over (partition by u.queue, u.stream) as n
                      from holdfast.message u where u.xact = p_xact and u.position is null
                     order by u.queue, u.stream, u.seq) x
             cross join lateral (select * from holdfast.stream s where s.queue = x.queue and s.name = x.stream offset 0) s) o
     where m.seq between o.seq and o.seq;
end
$$;
