-- Of these messages, those that are there.
select m.seq from holdfast_message m where m.seq in (select value from json_each(:seqs))
