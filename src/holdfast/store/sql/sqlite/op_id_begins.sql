-- Messages whose ids stand between two, wherever they are: pending, dead, ended. Each part walks an index.
select * from (select id, queue, type, 'pending' as what, created_at as at from holdfast_message
                where id between :low and :high limit :limit)
 union all
select * from (select id, queue, type, 'dead', died_at from holdfast_dead where id between :low and :high limit :limit)
 union all
select * from (select id, queue, type, outcome, ended_at from holdfast_history where id between :low and :high limit :limit)
