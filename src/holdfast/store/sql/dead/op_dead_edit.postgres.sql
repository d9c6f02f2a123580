-- A dead letter gets another body, if it is still the one that was seen.
update holdfast.dead set body = :body, epoch = least(epoch, 2147483646) + 1
 where id = :id::uuid and queue = :queue and seq = :number::bigint and epoch = :epoch::int returning id
