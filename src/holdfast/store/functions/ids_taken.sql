-- The first message, pending, scheduled, unrouted or dead, that has the id of one of these new messages in a queue that
-- the new one may come into. One that is scheduled for whoever subscribes, or unrouted, is in the way of another of its
-- type. A new message whose dedupe key is taken is not looked at: it will not be stored.
create or replace function holdfast.ids_taken(
    p_ids uuid[], p_types text[], p_queues text[], p_keys text[], p_ending bigint[], p_now timestamptz)
returns table (id uuid, goes_to text, state text, seq bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
    return query
    select u.id, h.goes_to, h.state, h.seq
      from unnest(p_ids, p_types, p_queues, p_keys) with ordinality u (id, type, queue, key, n)
     cross join lateral (
           select m.seq, m.type, case when m.queue = 'holdfast/timer' then m.target else m.queue end as goes_to,
                  case when m.queue is null then 'unrouted' when m.queue = 'holdfast/timer' then 'scheduled'
                       when m.claimable_at > coalesce(p_now, clock_timestamp()) and m.claimable_at < 'infinity'
                            and m.failures = 0 then 'scheduled' else 'pending' end as state
             from holdfast.pending m where m.id = u.id and m.seq <> all (p_ending)
            union all
           select d.seq, d.type, d.queue, 'dead' from holdfast.dead d where d.id = u.id) h
     where (h.goes_to = u.queue
            or (h.goes_to is null and h.type = u.type)
            or (u.queue is null and h.type = u.type and not exists (select 1 from holdfast.route(u.type)))
            or exists (select 1 from holdfast.route(u.type) r (queue)
                        where u.queue is null and r.queue = h.goes_to)
            or exists (select 1 from holdfast.route(h.type) r (queue)
                        where h.goes_to is null and (r.queue = u.queue or (u.queue is null and exists (
                              select 1 from holdfast.route(u.type) s (queue) where s.queue = r.queue)))))
       and not exists (select 1 from holdfast.dedupe k where k.scope = holdfast.dedupe_scope(u.type, u.key) and k.key = u.key)
     order by u.n, h.seq limit 1;
end
$$;
