-- Pending messages that have failed so often that they may be poison: how many, and the first few.
select count(*) over (), id, queue, type, attempts from holdfast.message
 where attempts >= :attempts::int and status & 32768 = 32768 order by attempts desc, seq limit :few::int
