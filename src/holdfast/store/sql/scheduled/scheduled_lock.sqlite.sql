-- Those of these messages that are scheduled.
select seq from holdfast_scheduled where seq in (select value from json_each(:seqs))
