-- The leases [seq, epoch] of a worker last longer.
update holdfast_lease set until = max(until, :until)
 where (seq, epoch) in (select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(:leases))
