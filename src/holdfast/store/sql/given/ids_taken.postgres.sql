-- The first message, pending, scheduled, unrouted or dead, that has the id of one of these new messages in a queue that
-- the new one may come into. One that is scheduled for whoever subscribes, or unrouted, is in the way of another of its
-- type. A new message whose dedupe key is taken is not looked at: it will not be stored.
select u.id, h.goes_to, h.state, h.seq
  from unnest(:ids::uuid[], :types::text[], :queues::text[], :keys::text[]) with ordinality u (id, type, queue, key, n)
 cross join lateral (
       select m.seq, m.type, case when m.queue = 'holdfast/timer' then m.target else m.queue end as goes_to,
              case when m.queue is null then 'unrouted' when m.queue = 'holdfast/timer' then 'scheduled'
                   when m.claimable_at > coalesce(:now::timestamptz, clock_timestamp()) and m.claimable_at < 'infinity'
                        and m.failures = 0 then 'scheduled' else 'pending' end as state
         from holdfast.message m where m.id = u.id and m.seq <> all (:ending::bigint[])
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
 order by u.n, h.seq limit 1
