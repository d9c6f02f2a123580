-- Timers that an older release stored in `message`, so many at once.
select m.seq from holdfast_message m where m.queue = 'holdfast/timer' and m.head and m.vanished = 0
 order by m.claimable_at limit :limit
