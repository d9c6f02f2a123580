-- Due messages, the oldest first, and the bytes of their bodies.
select seq, claimable_at, stream is not null, length(cast(body as blob)) from holdfast_scheduled
 where claimable_at <= :now order by claimable_at, seq limit :count
