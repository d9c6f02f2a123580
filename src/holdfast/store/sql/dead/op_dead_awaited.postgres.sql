-- Those of these dead letters that an instance waits for, by their headers.
select d.id, d.headers, d.epoch from holdfast.dead d
 where (d.id, d.queue, d.seq) in (select * from unnest(:ids::uuid[], :queues::text[], :numbers::bigint[]))
   and d.headers like '%"holdfast-on-dead":%'
