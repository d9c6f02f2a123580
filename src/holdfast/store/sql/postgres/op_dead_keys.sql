-- Which dead letters a redrive of many is about, in the order in which they come back: that of their old positions.
-- `after` is the last one of the batch before.
select d.id, d.queue, coalesce(d.position, d.seq), d.seq from holdfast.dead d
 where (:queue::text is null or d.queue = :queue) and (:type::text is null or d.type = :type)
   and (:stream::text is null or d.stream = :stream)
   and (:reason::int is null or coalesce(d.last_reason, d.reason) = :reason)
   and d.died_at <= :until::timestamptz
   and (coalesce(d.position, d.seq), d.seq) > (:after_position::bigint, :after_seq::bigint)
 order by coalesce(d.position, d.seq), d.seq limit :limit::int
