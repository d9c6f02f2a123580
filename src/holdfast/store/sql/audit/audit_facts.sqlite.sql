-- What an operator may change about a message.
select queue, stream, position, head, status, attempts, failures, vanished, refunds, reason,
       nullif(claimable_at, 9223372036854775807) as claimable_at, claimable_at = 9223372036854775807 as parked
  from holdfast_message where seq = :seq
