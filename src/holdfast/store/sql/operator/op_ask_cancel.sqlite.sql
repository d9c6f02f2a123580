-- Ask the holder of a lease to cancel; it sees that at its next heartbeat. No row: the lease has ended in the meantime.
update holdfast_lease set cancel = 1 where seq = :seq and epoch = :epoch returning seq
