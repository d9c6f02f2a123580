-- The first message, pending, scheduled, unrouted or dead, that has the id of one of these new messages in a queue that
-- the new one may come into. One that is scheduled for the subscribers of its time, or unrouted, conflicts with another
-- of its type. A new message whose dedupe key is taken is not checked: it will not be stored. The ids are looked for
-- first, by index; the other fields of the new messages are read only for those that were found, since SQLite reads a
-- list from its beginning for each element. The two tables are read one after the other: with a join of the view
-- `pending` SQLite would read all of it.
with h as materialized (
    select i.key as n, i.value as id, m.seq, m.type,
           case when m.queue = 'holdfast/timer' then m.target else m.queue end as goes_to,
           case when m.queue is null then 'unrouted' when m.queue = 'holdfast/timer' then 'scheduled'
                when m.claimable_at > :now and m.claimable_at < 9223372036854775807 and m.failures = 0 then 'scheduled'
                else 'pending' end as state
      from json_each(:ids) i cross join holdfast_message m on m.id = i.value
     where m.seq not in (select value from json_each(:ending))
     union all
    select i.key, i.value, m.seq, m.type, case when m.queue = 'holdfast/timer' then m.target else m.queue end,
           case when m.queue = 'holdfast/timer' or (m.claimable_at > :now and m.claimable_at < 9223372036854775807)
                then 'scheduled' else 'pending' end
      from json_each(:ids) i cross join holdfast_scheduled m on m.id = i.value
     where m.seq not in (select value from json_each(:ending))
     union all
    select i.key, i.value, d.seq, d.type, d.queue, 'dead' from json_each(:ids) i join holdfast_dead d on d.id = i.value),
u as materialized (
    select distinct n, id, json_extract(:types, '$[' || n || ']') as type, json_extract(:queues, '$[' || n || ']') as queue,
           json_extract(:keys, '$[' || n || ']') as key
      from h),
route as (
    select distinct x.type, s.queue
      from (select type from u union select type from h) x
      join holdfast_subscription s on s.pattern = x.type or (s.pattern like '%*'
       and substr(x.type, 1, length(s.pattern) - 1) = substr(s.pattern, 1, length(s.pattern) - 1)))
select u.id, h.goes_to, h.state, h.seq
  from u join h on h.n = u.n
 where (h.goes_to = u.queue
        or (h.goes_to is null and h.type = u.type)
        or (u.queue is null and h.type = u.type and not exists (select 1 from route r where r.type = u.type))
        or (u.queue is null and exists (select 1 from route r where r.type = u.type and r.queue = h.goes_to))
        or (h.goes_to is null and exists (
               select 1 from route r where r.type = h.type and (r.queue = u.queue or (u.queue is null and exists (
                      select 1 from route s where s.type = u.type and s.queue = r.queue))))))
   and not exists (select 1 from holdfast_dedupe k where k.scope = case when unicode(u.key) = 31 then '' else u.type end and k.key = u.key)
 order by u.n, h.seq limit 1
