-- The leases of these runs, if they and their messages exist.
select l.seq, l.epoch from json_each(:runs) j
 cross join holdfast_lease l on l.seq = j.value cross join holdfast_message m on m.seq = l.seq
