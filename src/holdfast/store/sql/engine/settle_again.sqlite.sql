-- An attempt ended and the message waits for another, in the order of its stream or out of it. One that pauses its
-- stream keeps its place and is not a head until the stream is resumed.
update holdfast_message
   set status = status | :flags, epoch = min(epoch, 2147483646) + 1, attempts = attempts + :counted, failures = failures + :failed,
       refunds = refunds + :refunded, vanished = case when :started then 0 else vanished end,
       errors = :errors, traceback = coalesce(:traceback, traceback), reason = coalesce(:reason, reason), claimable_at = :claimable_at,
       position = case when :removed then null else position end,
       head = (head or :removed) and not (:paused and position is not null)
 where seq = :seq
