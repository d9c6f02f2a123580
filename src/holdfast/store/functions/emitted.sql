-- The drafts of what settlements emit, duplicates left out; and the end of the dedupe keys of what they ended, since keys
-- are taken together.
create or replace function holdfast.emitted(p_emits json, p_ended_type text[], p_ended_key text[], p_now timestamptz)
returns holdfast.draft[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    e record;
    v_duplicates bigint[] := '{}';
begin
    if p_emits is null then
        perform holdfast.dedupe_settle(p_ended_type, p_ended_key, null, null, null, null, p_now);
        return null;
    end if;
    select array_agg(x.id) as id, array_agg(x.type) as type, array_agg(x.body) as body, array_agg(x.stream) as stream,
           array_agg(x.subject) as subject, array_agg(x.headers) as headers, array_agg(x.dedupe) as dedupe,
           array_agg(x.due_at) as due, array_agg(x.delay) as delay, array_agg(x.deadline) as deadline,
           array_agg(x.queue) as queue, array_agg(x.status) as status, array_agg(x.kept) as kept,
           count(x.dedupe) as keys, bool_or(x.status & 2 = 2) as events
      into e
      from json_to_recordset(p_emits) as x (
           id uuid, type text, body text, stream text, subject text, headers text, dedupe text, due_at timestamptz,
           delay float8, deadline timestamptz, queue text, status int, kept int);
    if e.keys > 0 or p_ended_key is not null then
        v_duplicates := array(select d.n from holdfast.dedupe_settle(p_ended_type, p_ended_key, e.id, e.type, e.dedupe,
                                                                     e.kept, p_now) d);
    end if;
    if e.events then
        -- Rows of event streams sorted, as those of streams.
        perform holdfast.append_event(x ->> 'stream', (x ->> 'id')::uuid, x ->> 'type', x ->> 'subject', x ->> 'headers',
                                      x ->> 'body', (x ->> 'expect')::bigint, true, p_now)
           from (select x from json_array_elements(p_emits) with ordinality e (x, n)
                  where (x ->> 'status')::int & 2 = 2 and n <> all (v_duplicates)
                  order by (x ->> 'stream') collate "C", n) e;
    end if;
    return array(
        select row(d.n, d.id, d.type, d.body, d.stream, d.subject, d.headers, d.dedupe, d.claimable_at, d.due_at,
                   d.deadline, d.queue, d.target, d.status, d.ordered)::holdfast.draft
          from holdfast.drafts(e.id, e.type, e.body, e.stream, e.subject, e.headers, e.dedupe, e.due, e.delay,
                               e.deadline, e.queue, e.status, p_now) d
         where d.n <> all (v_duplicates)
         order by d.n);
end
$$;
