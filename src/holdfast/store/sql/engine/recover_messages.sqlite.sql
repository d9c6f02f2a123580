-- Running messages count as vanished, those that had ended unreported as an attempt; the rest goes back unchanged.
update holdfast_message
   set attempts = attempts + (:lapsed or seq in (select value from json_each(:running)) or seq in (select value from json_each(:ended))),
       vanished = vanished + (not :stopping and (:lapsed or seq in (select value from json_each(:running)))),
       epoch = min(epoch, 2147483646) + 1, claimable_at = case when head then max(claimable_at, :now) else claimable_at end
 where seq = :seq
    or (queue = :queue and stream = :stream and position > :position and position <= :run_end)
