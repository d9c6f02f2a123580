-- How many messages of a queue have a live lease of their own, counted up to a limit.
select count(*) from (
    select 1 from holdfast.lease l join holdfast.message m on m.seq = l.seq
     where m.queue = :queue and l.until >= :now limit :limit::int) x
