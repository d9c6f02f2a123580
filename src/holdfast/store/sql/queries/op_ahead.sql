-- How many messages of a queue are claimed before this one, counted up to a limit.
select count(*) from (
    select 1 from holdfast.message m, holdfast.message mine
     where mine.seq = :seq and m.queue = mine.queue and m.head and m.vanished = 0
       and (m.claimable_at, m.seq) < (mine.claimable_at, mine.seq)
       and not exists (select 1 from holdfast.lease l where l.seq = m.seq)
     limit :limit::int) x
