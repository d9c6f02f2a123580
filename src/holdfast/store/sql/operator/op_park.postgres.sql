-- A message keeps its place and is not claimable until an operator retries it.
update holdfast.message set claimable_at = 'infinity', epoch = least(epoch, 2147483646) + 1 where seq = :seq
