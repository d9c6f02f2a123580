-- Nothing to wait for: there is one writer.
select null limit 0
