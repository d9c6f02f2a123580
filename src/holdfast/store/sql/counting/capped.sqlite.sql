-- What is pending in each of these queues, each state counted up to a limit through an index; since when the
-- oldest due one waits; and how many messages in retry had so many attempts that they may be poison.
with q (name) as (select value from json_each(:queues))
select q.name,
       (select count(*) from (select 1 from holdfast_message m
         where m.queue = q.name and m.head and m.vanished = 0 and m.claimable_at <= :now limit :cap)),
       (select count(*) filter (where failures > 0) from (select m.failures from holdfast_message m
         where m.queue = q.name and m.head and m.vanished = 0 and m.claimable_at > :now
           and m.claimable_at < 9223372036854775807 limit :cap)),
       (select count(*) filter (where failures = 0) from (select m.failures from holdfast_message m
         where m.queue = q.name and m.head and m.vanished = 0 and m.claimable_at > :now
           and m.claimable_at < 9223372036854775807 limit :cap)),
       (select count(*) from (select 1 from holdfast_message m
         where m.queue = q.name and m.head and m.vanished = 0 and m.claimable_at > :now
           and m.claimable_at < 9223372036854775807 limit :cap)),
       (select count(*) from (select 1 from holdfast_message m
         where m.queue = q.name and m.head and m.vanished = 0 and m.claimable_at = 9223372036854775807 limit :cap))
     + (select count(*) from (select 1 from holdfast_message m
         where m.queue = q.name and m.head and m.vanished > 0 and m.claimable_at = 9223372036854775807 limit :cap)),
       (select count(*) from (select 1 from holdfast_message m
         where m.queue = q.name and m.head and m.vanished > 0 and m.claimable_at < 9223372036854775807 limit :cap)),
       (select coalesce(sum(max(open - (halted_by is null), 0)), 0) from (select s.open, s.halted_by from holdfast_stream s
         where s.queue = q.name limit :cap)),
       (select count(*) from (select 1 from holdfast_stream s where s.queue = q.name limit :cap)),
       (select min(coalesce(due_at, created_at)) from (select m.due_at, m.created_at from holdfast_message m
         where m.queue = q.name and m.head and m.vanished = 0 and m.claimable_at <= :now
         order by m.claimable_at, m.seq limit 100)),
       (select count(*) filter (where attempts >= :attempts and status & 32768 = 32768)
          from (select m.attempts, m.status from holdfast_message m
         where m.queue = q.name and m.head and m.vanished = 0 and m.claimable_at > :now
           and m.claimable_at < 9223372036854775807 limit :cap))
  from q
