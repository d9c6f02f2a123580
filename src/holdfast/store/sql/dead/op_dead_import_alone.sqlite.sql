-- One import at a time in any case: there is one writer.
select null limit 0
