-- Store the reported progress of the handlers under these leases. A lost lease has no row.
update holdfast_lease
   set progress = (select p.value from json_each(:seq) s join json_each(:progress) p on p.key = s.key
                    where s.value = holdfast_lease.seq)
 where (seq, epoch) in (select s.value, e.value from json_each(:seq) s join json_each(:epoch) e on e.key = s.key)
