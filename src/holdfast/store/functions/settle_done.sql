-- Messages that are done leave for the history, if the lease of their run still stands. Answers arrays: of all that
-- were held, of those with a dedupe key, and of those in the order of a stream. Rows are locked in the order given: the
-- head of a run comes before its followers. The plan is pinned by `settle`, and by `between`: for an equality a table
-- that was empty when it was analyzed would be read from end to end, once for each message (docs/decisions/0010).
create or replace function holdfast.settle_done(
    p_seq bigint[], p_run bigint[], p_epoch int[], p_ran int[], p_now timestamptz,
    out seqs bigint[], out runs bigint[], out epochs int[], out types text[], out keys text[],
    out queues text[], out streams text[], out places bigint[])
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    with gone as (
        delete from holdfast.message m
         using unnest(p_seq, p_run, p_epoch, p_ran) u (seq, run, epoch, ran), holdfast.lease l
         where l.seq between u.run and u.run and l.epoch = u.epoch and m.seq between u.seq and u.seq
        returning m.seq, u.run, u.epoch, u.ran, m.queue, m.stream, m.position, m.id, m.type, m.subject, m.status, m.attempts,
                  m.failures, m.due_at, m.created_at, m.dedupe),
    told as (
        insert into holdfast.history (ended_at, started_at, due_at, id, status, attempts, failures, outcome, queue,
                                      type, stream, subject, origin)
        select p_now, p_now - g.ran * interval '1 millisecond', coalesce(g.due_at, g.created_at), g.id,
               g.status | 4, least(g.attempts, 2147483646) + 1, g.failures, 'done', g.queue, g.type, g.stream, g.subject,
               case when ascii(g.dedupe) = 31 then g.dedupe end
          from gone g)
    select array_agg(g.seq), array_agg(g.run), array_agg(g.epoch),
           array_agg(g.type) filter (where g.dedupe is not null),
           array_agg(g.dedupe) filter (where g.dedupe is not null),
           array_agg(g.queue) filter (where g.position is not null),
           array_agg(g.stream) filter (where g.position is not null),
           array_agg(g.position) filter (where g.position is not null)
      into seqs, runs, epochs, types, keys, queues, streams, places from gone g;
end
$$;
