-- The dedupe keys of messages that end are held for a while from now on.
update holdfast_dedupe set ended_at = :now
 where (scope, key) in (
     select case when unicode(dedupe) = 31 then '' else type end, dedupe from holdfast_message
      where seq in (select value from json_each(:seqs)) and dedupe is not null)
