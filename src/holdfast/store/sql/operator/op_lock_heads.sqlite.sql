-- Those of these messages that may be claimed on their own.
select seq from holdfast_message where seq in (select value from json_each(:seqs)) and head order by seq
