-- Rows of the history from before a moment, on a few pages. By going from page to page, none is read twice: rows that were
-- deleted stay there until they are vacuumed, and a search from the beginning would read them again each time.
delete from holdfast.history
 where ctid >= format('(%s,0)', :page::bigint)::tid and ctid < format('(%s,0)', :page::bigint + :pages::bigint)::tid
   and ended_at < :before::timestamptz returning 1
