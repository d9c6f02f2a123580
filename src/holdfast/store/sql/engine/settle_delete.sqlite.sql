-- Messages that have ended leave the table.
delete from holdfast_message where seq in (select value from json_each(:seqs))
