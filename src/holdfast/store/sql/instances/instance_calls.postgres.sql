-- The messages of calls and timers, locked. What is locked by others is handed out, settled or fired at this moment.
select seq, queue <> 'holdfast/timer' from holdfast.message
 where id = any (:ids::uuid[]) and (stream is null or queue = 'holdfast/timer') for update skip locked
