-- A message leaves the order of its stream: from now on it is claimable on its own.
update holdfast.message
   set position = null, xact = null, head = true, epoch = least(epoch, 2147483646) + 1,
       claimable_at = greatest(claimable_at, coalesce(:now::timestamptz, clock_timestamp()))
 where seq = :seq
