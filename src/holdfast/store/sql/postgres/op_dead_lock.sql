-- Lock dead letters, sorted, so that two operators do not wait for each other in a circle. Those that are gone are left
-- out, and so are those that are held and those whose message is pending again.
select d.id, d.queue, d.stream, d.position, d.seq, d.epoch from holdfast.dead d
 where (d.id, d.queue) in (select * from unnest(:ids::uuid[], :queues::text[]))
   and d.held_at is null
   and not exists (select 1 from holdfast.message m where m.id = d.id and m.queue = d.queue)
 order by d.id, d.queue for update of d
