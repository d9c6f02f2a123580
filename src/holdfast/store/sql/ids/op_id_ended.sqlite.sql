-- Ids with these last characters, among the newest million that have ended.
select distinct h.id from (select id from holdfast_history order by id desc limit 1000000) h
 where :since is not null and substr(h.id, 37 - length(:tail)) = :tail limit :limit
