-- Lease one suspect, alone: a message whose last hand-over never came back. Those of families come after the others. The plan is pinned by `exchange`.
create or replace function holdfast.claim_suspect(
    p_worker bigint, p_queue text[], p_family text[], p_without text[], p_lease float8, p_now timestamptz)
returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_seq bigint; v_epoch int;
begin
    for v_try in 1..20 loop
        select s.seq, s.epoch into v_seq, v_epoch from unnest(p_queue) w (queue)
         cross join lateral (
            select t.seq, t.epoch, t.claimable_at from holdfast.message t
             where t.queue = w.queue and t.head and t.vanished > 0 and t.claimable_at <= p_now
               and (select l.epoch from holdfast.lease l where l.seq = t.seq) is null
             order by t.claimable_at, t.seq limit 1 for update of t skip locked) s
         order by s.claimable_at, s.seq limit 1;
        if not found and p_family is not null then
            select s.seq, s.epoch into v_seq, v_epoch from unnest(p_family) f (name)
             cross join lateral (
                select t.seq, t.epoch, t.claimable_at from holdfast.message t
                 where t.queue > f.name || '/' and t.queue < f.name || '0' and t.head and t.vanished > 0 and t.claimable_at <= p_now
                   and t.queue <> all (p_without)
                   and (select l.epoch from holdfast.lease l where l.seq = t.seq) is null
                 order by t.queue, t.claimable_at, t.seq limit 1 for update of t skip locked) s
             limit 1;
        end if;
        if not found then
            return null;
        end if;
        -- step: suspect_lease
        insert into holdfast.lease (seq, until, worker, epoch)
        values (v_seq, p_now + p_lease * interval '1 second', p_worker, least(v_epoch, 2147483646) + 1) on conflict do nothing;
        if found then
            return array[v_seq];
        end if;
    end loop;  -- leased by another since the look began, which the next one sees
    return null;
end
$$;
