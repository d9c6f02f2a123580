-- Instances that have not ended, in the order of their index, behind one of them.
select id, queue, execution, turn, state from holdfast.instance
 where ended_at is null and (queue, id) > (:queue, :id) order by queue, id limit :limit::int
