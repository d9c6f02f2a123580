-- Take out the timers that are due and answer them as messages to be stored, with the same id; subscribers are those of
-- this moment. They enter their streams together with what the same transaction settles: rows of streams are sorted
-- only within one statement. So many bytes of bodies at once, one for each queue, but for one that is larger alone; `more`
-- says that others are due. Where another message with the same id is pending, a timer becomes a dead letter of that queue (reason 12), and
-- one that is too large for a value in memory (reason 11) of every queue it is for; without any it is parked.
create or replace function holdfast.fire_timers(
    p_limit int, p_bytes bigint, p_large bigint, p_now timestamptz, out drafts holdfast.draft[], out more boolean)
language plpgsql set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_seqs bigint[]; v_large bigint[]; v_found int; v_taken bigint[];
    e record; v_drafts holdfast.draft[];
    c_large constant text := 'PayloadTooLarge: its body is too large to be taken into a stream';
begin
    select count(*), array_agg(x.seq order by x.n) filter (where x.before < p_bytes and not x.large),
           array_agg(x.seq) filter (where x.before < p_bytes and x.large)
      into v_found, v_seqs, v_large
      from (select t.seq, t.bytes > p_large or t.bytes * c.copies > 3 * p_large as large, row_number() over w as n,
                   sum(t.bytes * c.copies) over w - t.bytes * c.copies as before
              from (select t.seq, t.claimable_at, t.type, t.target, octet_length(t.body) as bytes from holdfast.message t
                     where t.queue = 'holdfast/timer' and t.head and t.vanished = 0 and t.claimable_at <= p_now
                     order by t.claimable_at, t.seq limit p_limit for update skip locked) t
             cross join lateral (select case when t.target is not null then 1
                                             else greatest((select count(*) from holdfast.route(t.type)), 1) end as copies) c
            window w as (order by t.claimable_at, t.seq rows unbounded preceding)) x;
    more := v_found = p_limit or v_found > coalesce(cardinality(v_seqs), 0) + coalesce(cardinality(v_large), 0);
    if v_large is not null then
        -- One statement: who subscribes between two would have the message deleted without a dead letter.
        with routes as materialized (
            select m.seq, r.queue from holdfast.message m
             cross join lateral (select m.target as queue where m.target is not null
                                  union all select r.queue from holdfast.route(m.type) r (queue) where m.target is null) r
             where m.seq = any (v_large)),
        died as (
            insert into holdfast.dead (id, queue, seq, type, stream, subject, dedupe, status, epoch, attempts, failures,
                vanished, refunds, redrives, reason, created_at, due_at, deadline, died_at, errors, headers, body)
            select m.id, r.queue, holdfast.dead_number(m.id, r.queue, m.seq), m.type, m.stream, m.subject, m.dedupe,
                   m.status | 32768, least(m.epoch, 2147483646) + 1, m.attempts, m.failures, m.vanished, m.refunds, m.redrives, 11,
                   m.created_at, m.due_at, m.deadline, p_now, holdfast.with_error(m.errors, p_now, 11, c_large, 10), m.headers, m.body
              from routes r join holdfast.message m on m.seq = r.seq)
        delete from holdfast.message m where m.seq in (select r.seq from routes r);
        update holdfast.message m
           set claimable_at = 'infinity', status = m.status | 32768, epoch = least(m.epoch, 2147483646) + 1, reason = 11,
               errors = holdfast.with_error(m.errors, p_now, 11, c_large, 10)
         where m.seq = any (v_large);
    end if;
    if v_seqs is null then
        return;
    end if;
    with fired as (
        delete from holdfast.message m where m.seq = any (v_seqs)
        returning m.id, m.type, m.body, m.stream, m.subject, m.headers, m.dedupe, m.due_at, m.deadline, m.target,
                  m.status, m.claimable_at, m.seq)
    select array_agg(f.id) as id, array_agg(f.type) as type, array_agg(f.body) as body, array_agg(f.stream) as stream,
           array_agg(f.subject) as subject, array_agg(f.headers) as headers, array_agg(f.dedupe) as dedupe,
           array_agg(f.due_at) as due, array_agg(f.deadline) as deadline, array_agg(f.target) as queue,
           array_agg(f.status) as status
      into e from (select * from fired f order by f.claimable_at, f.seq) f;
    -- Numbers that no message of a settlement has: what is emitted with it comes first.
    v_drafts := array(
        select row(1000000000 + d.n, d.id, d.type, d.body, d.stream, d.subject, d.headers, d.dedupe, d.claimable_at, d.due_at,
                   d.deadline, d.queue, d.target, d.status, d.ordered)::holdfast.draft
          from holdfast.drafts(e.id, e.type, e.body, e.stream, e.subject, e.headers, e.dedupe, e.due, null, e.deadline,
                               e.queue, e.status, p_now) d order by d.n);
    -- step: timers_taken
    select array_agg(d.place) into v_taken
      from (select d.id, d.queue, row_number() over () as place from unnest(v_drafts) d) d
      join holdfast.message m on m.id = d.id and m.queue = d.queue;
    if v_taken is not null then
        insert into holdfast.dead (id, queue, seq, type, stream, subject, dedupe, status, epoch, attempts, failures,
            vanished, refunds, redrives, reason, created_at, due_at, deadline, died_at, errors, headers, body)
        select d.id, d.queue, holdfast.dead_number(d.id, d.queue, v_seqs[d.n - 1000000000]), d.type, d.stream,
               d.subject, d.dedupe, d.status | 32768, 1, 0, 0, 0, 0, 0, 12, p_now, d.due_at, d.deadline, p_now,
               holdfast.with_error(null, p_now, 12, holdfast.taken(d.id, d.queue), 10), d.headers, d.body
          from unnest(v_taken) t (place) cross join lateral (select (v_drafts[t.place]).*) d;
        v_drafts := array(select v_drafts[u.place] from generate_subscripts(v_drafts, 1) u (place)
                           where u.place <> all (v_taken) order by u.place);
    end if;
    drafts := nullif(v_drafts, '{}');
end
$$;
