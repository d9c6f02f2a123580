-- Lease the heads [seq, last position of the run, epoch].
insert into holdfast_lease (seq, until, worker, run_end, epoch)
select json_extract(value, '$[0]'), :until, :worker, json_extract(value, '$[1]'), json_extract(value, '$[2]')
  from json_each(:heads)
