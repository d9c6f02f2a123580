-- The leases of settled runs end.
delete from holdfast_lease where seq in (select value from json_each(:runs)) returning seq, until, worker, run_end
