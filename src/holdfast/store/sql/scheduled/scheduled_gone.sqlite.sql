-- Messages that were brought over leave the table.
delete from holdfast_scheduled where seq in (select value from json_each(:seqs))
