-- An operator holds a dead letter, or lets it go (`held` is false). Its epoch rises, so a stale reader notices the change.
update holdfast_dead set held_at = case when :held then :now end, held_why = :why, epoch = min(epoch, 2147483646) + 1
 where id = :id and queue = :queue and seq = :number returning id
