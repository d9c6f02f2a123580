-- Messages are claimable now. `reset` sets all counters but the epoch to 0 and clears Failed. A timer becomes due now.
-- Does nothing for those that are leased.
update holdfast.message m
   set claimable_at = coalesce(:now::timestamptz, clock_timestamp()), epoch = least(m.epoch, 2147483646) + 1,
       due_at = case when m.queue = 'holdfast/timer' and m.due_at > coalesce(:now::timestamptz, clock_timestamp()) then coalesce(:now::timestamptz, clock_timestamp()) else m.due_at end,
       attempts = case when :reset::boolean then 0 else m.attempts end,
       failures = case when :reset::boolean then 0 else m.failures end,
       vanished = case when :reset::boolean then 0 else m.vanished end,
       refunds = case when :reset::boolean then 0 else m.refunds end,
       reason = case when :reset::boolean then null else m.reason end,
       status = case when :reset::boolean then m.status & ~32768 else m.status end
 where m.seq = any (:seqs::bigint[]) and not exists (select 1 from holdfast.lease l where l.seq = m.seq)
returning m.seq
