-- Of these messages, those that exist, and whether they have a dedupe key.
select m.seq, m.dedupe is not null from holdfast_message m where m.seq in (select value from json_each(:seqs))
