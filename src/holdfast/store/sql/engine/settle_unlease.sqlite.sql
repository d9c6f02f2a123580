-- End leases.
delete from holdfast_lease where seq in (select value from json_each(:runs))
