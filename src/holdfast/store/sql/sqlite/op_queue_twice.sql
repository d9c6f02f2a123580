-- Which messages of a batch are pending in another queue as well.
select m.seq from holdfast_message m join holdfast_message t on t.id = m.id and t.queue = :target where m.seq in (select value from json_each(:seqs))
