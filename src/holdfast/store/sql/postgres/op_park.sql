-- A message keeps its place and is not claimable until somebody says retry.
update holdfast.message set claimable_at = 'infinity', epoch = epoch + 1 where seq = :seq
