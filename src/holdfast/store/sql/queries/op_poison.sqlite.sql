 where d.seq in (
    -- Failed messages that were tried so often and are not parked, found by one scan before anything is joined.
    select m.seq from holdfast_message m
     where m.attempts >= :attempts and m.status & 32768 = 32768 and m.claimable_at < 9223372036854775807
     order by m.attempts desc, m.created_at, m.seq limit :limit)
 order by d.attempts desc, d.created_at, d.seq
