-- Instances, those that moved last first. A range of queues holds all versions of one name.
select i.id, i.queue, i.state, i.execution, i.turn, i.status, i.trouble, i.attributes, i.entries, i.size,
       i.started_at, i.turned_at, i.ended_at
  from holdfast.instance i
 where (:low::text is null or i.queue >= :low::text collate "C" and i.queue < :high::text collate "C")
   and (:version::text is null or right(i.queue, length(:version::text)) = :version::text)
   and (:states::text[] is null or i.state = any (:states::text[]))
   and (:open::boolean is null or (i.ended_at is null) = :open::boolean)
   and (:wanted::text is null or i.attributes is not null and i.attributes::jsonb @> :wanted::text::jsonb)
   and (:troubled::boolean is null or (i.trouble is not null) = :troubled::boolean)
 order by coalesce(i.turned_at, i.started_at) desc, i.id limit :limit::int
