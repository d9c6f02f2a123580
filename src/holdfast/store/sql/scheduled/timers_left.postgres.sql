-- Timers that an older release stored in `message`, so many at once, locked. Rows that others have locked are skipped.
select m.seq from holdfast.message m where m.queue = 'holdfast/timer' and m.head and m.vanished = 0
 order by m.claimable_at limit :limit::int for update skip locked
