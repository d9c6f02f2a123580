-- Dead letters that came back or were discarded leave the table.
delete from holdfast.dead
 where (id, queue, seq) in (select * from unnest(:ids::uuid[], :queues::text[], :numbers::bigint[]))
