-- Rows of streams with nothing in their order that are not halted; they come back with the next message. Begins where the
-- batch before ended.
delete from holdfast_stream where (queue, name) in (
    select queue, name from holdfast_stream
     where open = 0 and halted_by is null and (queue, name) > (:queue, :name)
     order by queue, name limit :limit) returning queue, name
