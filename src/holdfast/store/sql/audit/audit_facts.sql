-- What an operator may change about a message.
select queue, stream, position, head, status, attempts, failures, vanished, refunds, reason,
       nullif(claimable_at, 'infinity') as claimable_at, claimable_at = 'infinity' as parked
  from holdfast.pending where seq = :seq
