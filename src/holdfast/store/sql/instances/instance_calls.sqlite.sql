-- The messages of calls and timers.
select seq, queue <> 'holdfast/timer' from holdfast_message
 where id in (select i.value from json_each(:ids) i) and (stream is null or queue = 'holdfast/timer')
