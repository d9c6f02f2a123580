-- The rest of each run {seq of its lease: seq of its next message} continues under the same lease, which is now on that
-- message.
insert into holdfast_lease (seq, until, worker, run_end, epoch)
select m.seq, l.until, l.worker, l.run_end, min(m.epoch, 2147483646) + 1 from json_each(:moves) j
 cross join holdfast_lease l on l.seq = cast(j.key as integer) cross join holdfast_message m on m.seq = j.value
