-- How much is pending in a queue, and its dead letters.
select (select count(*) from (select 1 from holdfast.message where queue = :queue and head and vanished = 0 limit :cap::int) x)
     + (select count(*) from (select 1 from holdfast.message where queue = :queue and head and vanished > 0 limit :cap::int) x)
     + (select count(*) from (select 1 from holdfast.message where queue = :queue and position is not null and not head
                               limit :cap::int) x)
     + (select count(*) from (select 1 from holdfast.scheduled where queue = :queue limit :cap::int) x),
       (select count(*) from holdfast.dead where queue = :queue)
