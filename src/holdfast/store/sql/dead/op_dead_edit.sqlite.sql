-- A dead letter gets another body, if it is still the one that was seen.
update holdfast_dead set body = :body, epoch = min(epoch, 2147483646) + 1
 where id = :id and queue = :queue and seq = :number and epoch = :epoch returning id
