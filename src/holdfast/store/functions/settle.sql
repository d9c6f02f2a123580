-- Apply settlements whose leases still stand, with their deltas, store what they emit, promote. Answers the seq of those that stood.
-- A run whose prefix is settled goes on under the same lease when `p_move_from` names its head, else it is given back.
-- All rows of streams are taken sorted, in one statement: those settled, those emitted into,
-- and (`p_place`: the transaction is the user's) those that it has published into.
create or replace function holdfast.settle(
    p_seq bigint[], p_run bigint[], p_epoch int[], p_ran int[], p_other json, p_move_from bigint[], p_move_to bigint[],
    p_emits json, p_deltas json, p_keep int, p_place boolean, p_now timestamptz)
returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_held bigint[]; v_runs bigint[]; v_epochs int[]; v_count int; v_sum bigint;
    v_queue text[]; v_stream text[]; v_place bigint[]; v_left boolean[]; v_removed int[]; v_start bigint[]; v_halt text[];
    v_emits json := p_emits; v_all boolean;
    v_applier text; v_rows json; v_guesses json;
    v_drafts holdfast.draft[]; v_ended_type text[]; v_ended_key text[];
begin
    if p_seq is not null then
        select d.seqs, d.runs, d.epochs, d.types, d.keys, d.queues, d.streams, d.places,
               array_fill(true, array[coalesce(cardinality(d.places), 0)]),
               array_fill(null::text, array[coalesce(cardinality(d.places), 0)])
          into v_held, v_runs, v_epochs, v_ended_type, v_ended_key, v_queue, v_stream, v_place, v_left, v_halt
          from holdfast.settle_done(p_seq, p_run, p_epoch, p_ran, v_now) d;
    end if;
    if p_other is not null then
        select v_held || array_agg(o.seq), v_runs || array_agg(o.run), v_epochs || array_agg(o.epoch),
               v_ended_type || array_agg(o.type) filter (where o.dedupe is not null),
               v_ended_key || array_agg(o.dedupe) filter (where o.dedupe is not null),
               v_queue || array_agg(o.queue) filter (where o.place is not null),
               v_stream || array_agg(o.stream) filter (where o.place is not null),
               v_place || array_agg(o.place) filter (where o.place is not null),
               v_left || array_agg(o.removed) filter (where o.place is not null),
               v_halt || array_agg(o.halt) filter (where o.place is not null)
          into v_held, v_runs, v_epochs, v_ended_type, v_ended_key, v_queue, v_stream, v_place, v_left, v_halt
          from holdfast.settle_other(p_other, p_keep, v_now) o;
    end if;
    if v_runs <> v_held then  -- several of one run
        select array_agg(r.run), array_agg(r.epoch) into v_runs, v_epochs
          from (select distinct u.run, u.epoch from unnest(v_runs, v_epochs) u (run, epoch)) r;
    end if;
    if v_queue is not null then
        select array_agg(t.queue), array_agg(t.stream), array_agg(t.removed), array_agg(t.start), array_agg(t.halt)
          into v_queue, v_stream, v_removed, v_start, v_halt
          from (select u.queue, u.stream, count(*) filter (where u.removed) as removed,
                       case when min(u.place) < 4611686018427387904 then min(u.place) else 0 end as start,  -- else no place of ours
                       max(u.halt) as halt
                  from unnest(v_queue, v_stream, v_place, v_left, v_halt) u (queue, stream, place, removed, halt)
                 group by u.queue, u.stream) t;
    end if;
    -- step: settle_lease
    if p_move_from is not null then
        -- A run is looked for from the beginning of its array, which for some hundred is cheaper than any join.
        insert into holdfast.lease (seq, until, worker, run_end, epoch)
        select m.seq, l.until, l.worker, l.run_end, least(m.epoch, 2147483646) + 1
          from unnest(p_move_from, p_move_to) v (run, next)
          join holdfast.lease l on l.seq between v.run and v.run and l.epoch = v_epochs[array_position(v_runs, v.run)]
          join holdfast.message m on m.seq between v.next and v.next
           for update of l;  -- a renewal on its way is waited for: the rest of the run has what it gives
    end if;
    -- step: settle_end
    with ended as (delete from holdfast.lease l where l.seq = any (v_runs) returning l.epoch)
    select count(*), sum(e.epoch) into v_count, v_sum from ended e;
    -- Epochs only rise, so equal sums mean that each was still ours (a join would look them up one by one).
    if v_count <> coalesce(cardinality(v_runs), 0) or v_sum <> (select sum(u.epoch) from unnest(v_epochs) u (epoch)) then
        raise exception using errcode = '40001', message = 'holdfast: a lease was taken over while it was being settled';
    end if;
    v_all := coalesce(cardinality(v_held), 0) =
             coalesce(cardinality(p_seq), 0) + coalesce(json_array_length(p_other), 0);
    if p_deltas is not null then
        -- Each applier is a function of its own, apply_NAME(rows, now). Its rows are locked before those of streams.
        for v_applier, v_rows in
            select d.applier, json_agg(r.value order by d.n, r.n)
              from rows from (json_to_recordset(p_deltas) as (by bigint, run bigint, epoch int, applier text, rows json))
                   with ordinality d (by, run, epoch, applier, rows, n)
             cross join lateral json_array_elements(d.rows) with ordinality r (value, n)
             where v_all or d.by = any (v_held) and v_epochs[array_position(v_runs, d.run)] = d.epoch
             group by 1 order by 1
        loop
            if v_applier = 'guesses' then
                v_guesses := v_rows;  -- they need the rows of streams
                continue;
            end if;
            execute format('select holdfast.%I($1, $2)', 'apply_' || v_applier) using v_rows, v_now;
        end loop;
    end if;
    if p_emits is not null and not v_all then
        select json_agg(e.value order by e.n) into v_emits
          from json_array_elements(p_emits) with ordinality e (value, n)
         cross join lateral json_to_record(e.value) as d (by bigint, run bigint, epoch int)
         where d.by = any (v_held) and v_epochs[array_position(v_runs, d.run)] = d.epoch;
    end if;
    if v_emits is not null or v_ended_key is not null then
        -- step: settle_keys
        v_drafts := holdfast.emitted(v_emits, v_ended_type, v_ended_key, v_now);
    end if;
    if v_queue is not null or v_drafts is not null or v_guesses is not null then
        -- step: settle_streams
        if p_place and exists (select 1 from holdfast.message m where m.xact = pg_current_xact_id()) then
            insert into holdfast.stream as s (queue, name, open)
            select u.queue, u.stream, 0 from unnest(v_queue, v_stream) u (queue, stream)
             union
            select d.queue, d.stream, 0 from unnest(v_drafts) d where d.ordered and d.queue is not null
             union
            select m.queue, m.stream, 0 from holdfast.message m where m.xact = pg_current_xact_id()
             order by 1, 2
                on conflict (queue, name) do update set open = s.open;
            if p_now is not null then
                perform set_config('holdfast.now', p_now::text, true);
            end if;
            -- step: settle_place
            set constraints holdfast.message_place immediate;  -- only the trigger's queue knows who was placed already
            set constraints holdfast.message_place deferred;
        end if;
        perform holdfast.advance(v_queue, v_stream, v_removed, v_start, v_halt, v_drafts, v_now, v_guesses);
    end if;
    return coalesce(v_held, '{}');
end
$$;
