-- Which of these heads {place in the list: [queue, stream, position]} have a message behind them. Mostly none has: then
-- nobody looks behind each of them.
select cast(j.key as integer) from json_each(:heads) j
 where exists (select 1 from holdfast_message m
                where m.queue = j.value ->> 0 and m.stream = j.value ->> 1 and m.position > j.value ->> 2)
