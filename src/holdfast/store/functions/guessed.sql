-- Decides the guesses of settlements: turns that the workers of activities have run ahead. `advance` has locked their
-- streams. A guess fits if nothing is open in the stream of its instance, nothing halts it or its queue, and the instance
-- stands where the worker believed; then its turn is stored, else the answer of its activity is counted in. Returns the
-- drafts of what the turns emit and of those answers, behind all others.
-- An instance row that is locked is being changed at this moment, so the guess does not fit: nobody waits for it here,
-- where rows of streams are held.
create or replace function holdfast.guessed(p_guesses json, p_now timestamptz) returns holdfast.draft[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_fits bigint[]; v_turns json; v_emits json;
begin
    select array_agg(f.n), json_agg(f.turn order by f.id) into v_fits, v_turns
      from (select g.n, g.id, g.turn
              from rows from (json_to_recordset(p_guesses) as (queue text, id text, was uuid, turn json))
                   with ordinality g (queue, id, was, turn, n)
             cross join lateral json_to_record(g.turn) t (execution int, turn int, state text)
             cross join lateral (
                   select from holdfast.stream s
                    where s.queue = g.queue and s.name = g.id and s.open = 0 and s.halted_by is null offset 0) s
              join holdfast.instance i on i.id between g.id and g.id  -- as in apply_turns
             where i.execution = t.execution and i.turn = t.turn - 1 and i.mark = g.was and i.state = 'running'
               and (t.state = 'running' or i.reply is null)
               and not exists (select from holdfast.queue q where q.name = g.queue and q.paused_at is not null)
               for update of i skip locked) f;
    if v_fits is not null then
        -- step: guessed_turns
        perform holdfast.apply_turns(v_turns, p_now);
    end if;
    if v_fits is null or cardinality(v_fits) < json_array_length(p_guesses) then
        -- step: guessed_refused
        insert into holdfast.stream as s (queue, name, open)
        select g.queue, g.id, count(*)
          from rows from (json_to_recordset(p_guesses) as (queue text, id text)) with ordinality g (queue, id, n)
         where v_fits is null or g.n <> all (v_fits)
         group by g.queue, g.id
            on conflict (queue, name) do update set open = s.open + excluded.open, last = null;
    end if;
    select json_agg(e.value order by g.n, e.n) into v_emits
      from rows from (json_to_recordset(p_guesses) as (answer json, emits json)) with ordinality g (answer, emits, n)
     cross join lateral json_array_elements(
           case when g.n = any (v_fits) then g.emits else json_build_array(g.answer) end) with ordinality e (value, n);
    if v_emits is null then
        return null;
    end if;
    return array(
        select row(d.n + 1073741824, d.id, d.type, d.body, d.stream, d.subject, d.headers, d.dedupe, d.claimable_at,
                   d.due_at, d.deadline, d.queue, d.target, d.status, d.ordered)::holdfast.draft
          from unnest(holdfast.emitted(v_emits, null, null, p_now)) d);
end
$$;
