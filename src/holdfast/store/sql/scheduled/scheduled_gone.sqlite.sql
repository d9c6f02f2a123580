-- What was brought over leaves the table.
delete from holdfast_scheduled where seq in (select value from json_each(:seqs))
