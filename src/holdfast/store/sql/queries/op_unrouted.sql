-- Types that nobody subscribes to, with the messages that wait for a subscriber.
select type, count(*), min(created_at) from holdfast.message where queue is null
 group by type order by 2 desc, 1 limit :limit::int
