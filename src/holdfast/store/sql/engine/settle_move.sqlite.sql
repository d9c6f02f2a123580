-- The rest of a run goes on under the same lease, now on the next message.
insert into holdfast_lease (seq, until, worker, run_end, epoch)
select m.seq, :until, :worker, :run_end, min(m.epoch, 2147483646) + 1 from holdfast_message m where m.seq = :next
