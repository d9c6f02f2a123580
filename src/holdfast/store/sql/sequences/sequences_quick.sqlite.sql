-- Sequences: the last number drawn, and the highest that is stored, by the newest rows only. A position is the number
-- of its message. What is beyond 2^61 was written by other software (rules/numbers.py).
select u.name, u.sequence, coalesce((select q.seq from sqlite_sequence q where q.name = u.sequence), 0), u.stored
  from (select 'messages' as name, 'holdfast_message' as sequence,
               max((select coalesce(max(seq), 0) from holdfast_message where seq <= 2305843009213693952),
                   (select coalesce(max(seq), 0) from holdfast_scheduled where seq <= 2305843009213693952)) as stored
         union all select 'workers', 'holdfast_worker', (select coalesce(max(id), 0) from holdfast_worker)
         union all select 'orders', 'holdfast_audit', (select coalesce(max(number), 0) from holdfast_audit)
         union all select 'news', 'holdfast_alert_news', (select coalesce(max(number), 0) from holdfast_alert_news)) u
