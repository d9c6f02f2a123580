-- Scheduled messages get another time. A time that has passed becomes now.
update holdfast_message set due_at = :due, claimable_at = max(:due, :now), epoch = min(epoch, 2147483646) + 1
 where seq in (select value from json_each(:seqs))
