-- A message keeps its place and is not claimable until an operator retries it.
update holdfast_message set claimable_at = 9223372036854775807, epoch = min(epoch, 2147483646) + 1 where seq = :seq
