-- The dedupe keys of messages that are discarded may be used again at once.
delete from holdfast_dedupe
 where (scope, key, id) in (
     select case when unicode(dedupe) = 31 then '' else type end, dedupe, id from holdfast_message
      where seq in (select value from json_each(:seqs)) and dedupe is not null)
