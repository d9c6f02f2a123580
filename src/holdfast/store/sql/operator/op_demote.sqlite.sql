-- The head of a halted stream waits like the others.
update holdfast_message set head = 0, epoch = min(epoch, 2147483646) + 1 where seq = :seq and head
