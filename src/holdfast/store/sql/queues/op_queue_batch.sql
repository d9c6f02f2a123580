-- The next messages of a queue that is emptied: those out of the order, and of each stream the front of its order, so
-- that the head comes with them.
select x.seq, x.id, x.stream, x.position from (
    select seq, id, stream, position from holdfast.message
     where queue = :queue and head and vanished = 0 and position is null order by claimable_at, seq limit :limit::int) x
 union all select x.seq, x.id, x.stream, x.position from (
    select seq, id, stream, position from holdfast.message
     where queue = :queue and head and vanished > 0 and position is null order by claimable_at, seq limit :limit::int) x
 union all select x.seq, x.id, x.stream, x.position from (
    select seq, id, stream, position from holdfast.message
     where queue = :queue and position is not null order by stream, position limit :limit::int) x
