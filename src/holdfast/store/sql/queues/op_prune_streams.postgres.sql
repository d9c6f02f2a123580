-- Rows of streams with nothing in their order that are not halted; they come back with the next message. A producer
-- that counts a message in holds the row, so it is skipped here; one that comes while we hold it waits, finds no row
-- and inserts a new one with the right count. The condition is checked again under the lock, so a row into which a
-- message was counted in the meantime stays. Begins where the batch before ended.
delete from holdfast.stream s where s.ctid = any (array(
    select x.ctid from holdfast.stream x
     where x.open = 0 and x.halted_by is null and (x.queue, x.name) > (:queue::text, :name::text)
     order by x.queue, x.name limit :limit::int for update skip locked))
   and s.open = 0 and s.halted_by is null returning s.queue, s.name
