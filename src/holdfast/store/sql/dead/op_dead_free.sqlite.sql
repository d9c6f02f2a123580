-- The dedupe key of a dead letter that is discarded may be used again at once.
delete from holdfast_dedupe
 where (scope, key, id) in (
     select case when unicode(dedupe) = 31 then '' else type end, dedupe, id from holdfast_dead where id = :id and queue = :queue and seq = :number)
