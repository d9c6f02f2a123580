-- Ids that begin with a text (from .. to), or end with it.
select id from holdfast.instance
 where (id >= :low and id < :high) or substr(id, length(id) - :length::int + 1) = :ending
 order by id limit :limit::int
