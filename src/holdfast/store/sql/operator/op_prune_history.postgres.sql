-- Lines of history from before a moment, on a few pages. Going from page to page, none is read twice: lines that were
-- deleted stay there until they are vacuumed, and whoever looks from the beginning passes them again each time.
delete from holdfast.history
 where ctid >= format('(%s,0)', :page::bigint)::tid and ctid < format('(%s,0)', :page::bigint + :pages::bigint)::tid
   and ended_at < :before::timestamptz returning 1
