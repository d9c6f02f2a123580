-- Scheduled messages get another time. A time that has passed becomes now.
update holdfast.message m
   set due_at = :due::timestamptz, claimable_at = greatest(:due::timestamptz, coalesce(:now::timestamptz, clock_timestamp())),
       epoch = least(m.epoch, 2147483646) + 1
 where m.seq = any (:seqs::bigint[])
