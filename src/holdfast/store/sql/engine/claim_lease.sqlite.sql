-- Lease messages {seq: epoch} that have no order.
insert into holdfast_lease (seq, until, worker, epoch)
select cast(key as integer), :until, :worker, value from json_each(:heads)
