-- Store new messages of one type for one of its queues (id, body, stream, subject, headers, key). Those of a stream wait for
-- their place (place_*).
insert into holdfast_message (id, type, body, stream, subject, headers, dedupe, claimable_at, created_at, queue, plain,
                              head, xact)
select json_extract(value, '$[0]'), :type, json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'), :now, :now, :queue, null,
       not :ordered or json_extract(value, '$[2]') is null,
       case when :ordered and :queue is not null and json_extract(value, '$[2]') is not null then 2 end
  from json_each(:messages)
