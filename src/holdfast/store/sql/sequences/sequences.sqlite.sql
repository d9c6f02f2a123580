-- Sequences: the last number drawn, and the highest that is stored anywhere. It reads all that is pending or dead. A
-- position is the number of its message. What is beyond 2^61 was written by other software, and must not hide that a
-- sequence is behind (rules/numbers.py).
select u.name, u.sequence, coalesce((select q.seq from sqlite_sequence q where q.name = u.sequence), 0), u.stored
  from (select 'messages' as name, 'holdfast_message' as sequence,
               max(coalesce((select max(seq) from holdfast_message where seq <= 2305843009213693952), 0),
                   coalesce((select max(seq) from holdfast_scheduled where seq <= 2305843009213693952), 0),
                   coalesce((select max(position) from holdfast_message where position <= 2305843009213693952), 0),
                   coalesce((select max(seq) from holdfast_dead where seq <= 2305843009213693952), 0),
                   coalesce((select max(position) from holdfast_dead where position <= 2305843009213693952), 0),
                   coalesce((select max(seq) from holdfast_lease), 0), coalesce((select max(run_end) from holdfast_lease), 0)) as stored
         union all
        select 'workers', 'holdfast_worker',
               max(coalesce((select max(id) from holdfast_worker), 0), coalesce((select max(worker) from holdfast_lease), 0))
         union all select 'orders', 'holdfast_audit', (select coalesce(max(number), 0) from holdfast_audit)
         union all
        select 'news', 'holdfast_alert_news',
               max(coalesce((select max(number) from holdfast_alert_news), 0), coalesce((select max(episode) from holdfast_alert), 0))) u
