-- What an older release stored as a timer in `message`, so many at once, locked. What others have locked is theirs.
select m.seq from holdfast.message m where m.queue = 'holdfast/timer' and m.head and m.vanished = 0
 order by m.claimable_at limit :limit::int for update skip locked
