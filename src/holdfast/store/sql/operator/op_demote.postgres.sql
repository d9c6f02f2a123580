-- The head of a halted stream waits like the others.
update holdfast.message set head = false, epoch = least(epoch, 2147483646) + 1 where seq = :seq and head
