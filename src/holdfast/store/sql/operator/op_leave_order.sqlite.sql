-- A message leaves the order of its stream: from now on it is claimable on its own.
update holdfast_message
   set position = null, head = 1, epoch = min(epoch, 2147483646) + 1, claimable_at = max(claimable_at, :now)
 where seq = :seq
