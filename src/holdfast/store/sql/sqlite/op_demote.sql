-- The head of a halted stream waits like the others.
update holdfast_message set head = 0, epoch = epoch + 1 where seq = :seq and head
