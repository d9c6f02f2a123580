-- Ids with these last characters, among the newest million pending and the newest million dead: ids are ordered by time,
-- so an index is read from its end, and no second index makes every publish slower.
select m.id from (select id from holdfast.pending order by id desc limit 1000000) m
 where substr(m.id::text, 37 - length(:tail::text)) = :tail::text
 union
select d.id from (select id from holdfast.dead order by id desc limit 1000000) d
 where substr(d.id::text, 37 - length(:tail::text)) = :tail::text
 union
select r.id from (select id from holdfast.request order by id desc limit 1000000) r
 where substr(r.id::text, 37 - length(:tail::text)) = :tail::text
 limit :limit
