-- Messages to be stored, one row for each queue they go to. What is due later and belongs to a stream, or what is due in more
-- than a minute and nobody subscribes to, comes into `holdfast/timer`: whose it is, is decided when it is due. It enters
-- the order only then, so it never blocks the stream before. Like `covers` it becomes part of the
-- statement that calls it. (An unnest of several arrays is the system's own, and cannot name its schema.)
create or replace function holdfast.drafts(
    p_id uuid[], p_type text[], p_body text[], p_stream text[], p_subject text[], p_headers text[], p_dedupe text[],
    p_due timestamptz[], p_delay float8[], p_deadline timestamptz[], p_queue text[], p_status int[], p_now timestamptz)
returns table (n bigint, id uuid, type text, body text, stream text, subject text, headers text, dedupe text,
               claimable_at timestamptz, due_at timestamptz, deadline timestamptz, queue text, target text,
               status int, ordered boolean)
language sql stable as $$
    with routes as materialized (  -- looked up once for each type, not for each message
        select t.type, r.queue from (select distinct t.type from pg_catalog.unnest(p_type) t (type)) t
         cross join lateral holdfast.route(t.type) r (queue))
    select u.n, u.id, u.type, u.body, u.stream, u.subject, u.headers, u.dedupe,
           greatest(w.due, p_now), w.due, u.deadline,
           case when w.timer then 'holdfast/timer'
                else coalesce(u.queue, r.queue, case when holdfast.is_later(null, w.due, p_now) then 'holdfast/timer' end) end,
           case when w.timer then u.queue end,
           coalesce(u.status, 1),
           u.stream is not null and not w.timer and coalesce(q.ordered, true)
      from unnest(p_id, p_type, p_body, p_stream, p_subject, p_headers, p_dedupe, p_due, p_delay, p_deadline,
                  p_queue, p_status)
           with ordinality u (id, type, body, stream, subject, headers, dedupe, due, delay, deadline, queue, status, n)
     cross join lateral (select coalesce(u.due, p_now operator(pg_catalog.+) (u.delay operator(pg_catalog.*) interval '1 second')) as due) d
     cross join lateral (select d.due, coalesce(u.stream is not null and d.due operator(pg_catalog.>) p_now, false) as timer) w
      left join routes r on r.type operator(pg_catalog.=) u.type and u.queue is null and not w.timer
      left join holdfast.queue q on u.stream is not null and q.name operator(pg_catalog.=) coalesce(u.queue, r.queue)
$$;
