-- How many of these leases {seq: epoch} are valid and have their message, and how many of the messages have a dedupe key.
select count(*), count(m.dedupe) from json_each(:runs) j
 cross join holdfast_lease l on l.seq = cast(j.key as integer) and l.epoch = j.value
 cross join holdfast_message m on m.seq = l.seq
