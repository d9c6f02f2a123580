-- Whether there is a message before the one that was locked as the first: a redrive into a halted stream put it there
-- while we waited for the lock. Asked in a statement of its own; one row means that the command must be tried again.
select 1 from holdfast.message
 where queue = :queue and stream = :stream and position < :position limit 1
