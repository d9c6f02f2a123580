-- Rows of streams with nothing in their order that are not halted; they come back with the next message.
delete from holdfast_stream where (queue, name) in (
    select queue, name from holdfast_stream where open = 0 and halted_by is null limit :limit) returning 1
