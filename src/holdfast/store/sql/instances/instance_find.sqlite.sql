-- Instances, those that moved last first. A range of queues holds all versions of one name.
select i.id, i.queue, i.state, i.execution, i.turn, i.status, i.trouble, i.attributes, i.entries, i.size,
       i.started_at, i.turned_at, i.ended_at
  from holdfast_instance i
 where (:low is null or i.queue >= :low and i.queue < :high)
   and (:version is null or substr(i.queue, -length(:version)) = :version)
   and (:states is null or i.state in (select s.value from json_each(:states) s))
   and (:open is null or (i.ended_at is null) = :open)
   and (:wanted is null or i.attributes is not null and not exists (
        select 1 from json_each(:wanted) w where (i.attributes ->> ('$."' || w.key || '"')) is not w.value))
   and (:troubled is null or (i.trouble is not null) = :troubled)
 order by coalesce(i.turned_at, i.started_at) desc, i.id limit :limit
