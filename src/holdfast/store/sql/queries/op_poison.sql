 where d.seq in (
    -- Failed messages that were tried so often and are not parked, found by one scan before anything is joined.
    select m.seq from holdfast.message m
     where m.attempts >= :attempts::int and m.status & 32768 = 32768 and m.claimable_at < 'infinity'
     order by m.attempts desc, m.created_at, m.seq limit :limit::int)
 order by d.attempts desc, d.created_at, d.seq
