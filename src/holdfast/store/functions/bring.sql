-- Bring over what is due: from `scheduled` into the queues of `message`, the oldest first, so many and so many bytes of bodies
-- at once, but for one that is larger alone. Another worker gets others. What is in `holdfast/timer` goes to its target, or to
-- the subscribers of this moment; without any it is unrouted. It keeps its time, so claims are the oldest first. Where
-- another message with the same id is pending, it becomes a dead letter of that queue (reason 12).
-- `p_since`: what is due earlier is not looked at. Answers how many were brought, the time of the last, and the queues.
create or replace function holdfast.bring(
    p_limit int, p_bytes bigint, p_since timestamptz, p_now timestamptz, out brought int, out last timestamptz, out queues text[])
language plpgsql set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_seqs bigint[]; v_ordered boolean;
begin
    -- step: bring_due
    select array_agg(x.seq order by x.n), max(x.claimable_at), bool_or(x.stream is not null) into v_seqs, last, v_ordered
      from (select s.seq, s.claimable_at, s.stream, row_number() over w as n, sum(s.bytes) over w - s.bytes as before
              from (select t.seq, t.claimable_at, t.stream, octet_length(t.body) as bytes from holdfast.scheduled t
                     where t.claimable_at >= p_since and t.claimable_at <= v_now
                     order by t.claimable_at, t.seq limit p_limit for update skip locked) s
            window w as (order by s.claimable_at, s.seq rows unbounded preceding)) x
     where x.before < p_bytes;
    brought := coalesce(cardinality(v_seqs), 0);
    if v_seqs is null then
        return;
    end if;
    -- step: bring_store
    with route as materialized (
        select u.n, s.seq, s.id, r.queue, row_number() over (partition by s.id, r.queue order by u.n) as nth
          from unnest(v_seqs) with ordinality u (seq, n) join holdfast.scheduled s on s.seq = u.seq
          left join lateral (
               select coalesce(s.target, s.queue) as queue where s.target is not null or s.queue <> 'holdfast/timer'
                union all
               select t.queue from holdfast.route(s.type) t (queue) where s.target is null and s.queue = 'holdfast/timer') r on true),
    stored as (
        insert into holdfast.message (id, type, body, stream, subject, headers, dedupe, claimable_at, created_at, due_at,
                                      deadline, queue, plain, status, epoch, head, xact)
        select s.id, s.type, s.body, s.stream, s.subject, s.headers, s.dedupe, s.claimable_at, s.created_at, s.due_at,
               s.deadline, r.queue, null, s.status, s.epoch, s.stream is null or not coalesce(q.ordered, true),
               case when s.stream is not null and r.queue is not null and coalesce(q.ordered, true) then pg_current_xact_id() end
          from route r join holdfast.scheduled s on s.seq = r.seq
          left join holdfast.queue q on s.stream is not null and q.name = r.queue
         where r.nth = 1 or r.queue is null order by r.n, r.queue
            on conflict do nothing  -- waits for one who is just storing the same id
        returning id, queue),
    died as (
        insert into holdfast.dead (id, queue, seq, type, stream, subject, dedupe, status, epoch, attempts, failures,
            vanished, refunds, redrives, reason, created_at, due_at, deadline, died_at, errors, headers, body)
        select s.id, r.queue, holdfast.dead_number(s.id, r.queue, s.seq), s.type, s.stream, s.subject, s.dedupe, s.status | 32768,
               least(s.epoch, 2147483646) + 1, 0, 0, 0, 0, 0, 12, s.created_at, s.due_at, s.deadline, v_now,
               holdfast.with_error(null, v_now, 12, holdfast.taken(s.id, r.queue), 10), s.headers, s.body
          from route r join holdfast.scheduled s on s.seq = r.seq
         where r.queue is not null
           and (r.nth > 1 or not exists (select 1 from stored t where t.id = r.id and t.queue = r.queue))),
    gone as (
        delete from holdfast.scheduled s where s.seq = any (v_seqs))
    select array_agg(distinct t.queue) filter (where t.queue is not null) into queues from stored t;
    if v_ordered then
        -- step: bring_place
        perform holdfast.place(pg_current_xact_id(), '-infinity');
    end if;
    perform holdfast.nudge(queues);
end
$$;
