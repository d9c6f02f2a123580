-- Ids with these last characters, among a million that have ended since a moment: the history has no index of ids.
select distinct h.id from (select id from holdfast.history where ended_at > :since::timestamptz limit 1000000) h
 where substr(h.id::text, 37 - length(:tail::text)) = :tail::text limit :limit
