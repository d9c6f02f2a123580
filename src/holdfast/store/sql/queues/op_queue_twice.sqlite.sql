-- Messages of a batch whose id is taken in another queue, by a message that is pending there.
select m.seq from holdfast_message m join holdfast_message t on t.id = m.id and t.queue = :target
 where m.seq in (select value from json_each(:seqs))
