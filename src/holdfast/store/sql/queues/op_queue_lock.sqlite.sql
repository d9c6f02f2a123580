-- The messages of a batch.
select seq from holdfast_message where seq in (select value from json_each(:seqs))
