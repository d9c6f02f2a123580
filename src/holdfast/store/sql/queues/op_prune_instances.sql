-- Instances that ended before a moment, the oldest first: as many as have about so many rows of journal together. Their
-- journals are removed in the same transaction.
delete from holdfast.instance
 where ended_at < :before::timestamptz and id in (
       select f.id from (
              select i.id, i.turn, sum(i.turn + 1) over (order by i.ended_at, i.id) as total
                from (select id, turn, ended_at from holdfast.instance
                       where ended_at < :before::timestamptz order by ended_at, id limit :limit::int) i) f
        where f.total - f.turn - 1 < :limit::int)
returning id
