-- Messages are claimable now. `reset` sets all counters but the epoch to 0 and clears Failed. A timer becomes due now.
-- Does nothing for those that are leased.
update holdfast_message as m
   set claimable_at = :now, epoch = min(m.epoch, 2147483646) + 1,
       due_at = case when m.queue = 'holdfast/timer' and m.due_at > :now then :now else m.due_at end,
       attempts = case when :reset then 0 else m.attempts end,
       failures = case when :reset then 0 else m.failures end,
       vanished = case when :reset then 0 else m.vanished end,
       refunds = case when :reset then 0 else m.refunds end,
       reason = case when :reset then null else m.reason end,
       status = case when :reset then m.status & ~32768 else m.status end
 where m.seq in (select value from json_each(:seqs)) and not exists (select 1 from holdfast_lease l where l.seq = m.seq)
returning seq
