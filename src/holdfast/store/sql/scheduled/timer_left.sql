-- Whether an older release has stored a timer in `message`.
select 1 from holdfast.message m where m.queue = 'holdfast/timer' and m.head and m.vanished = 0 limit 1
