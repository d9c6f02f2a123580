-- Lock dead letters, sorted, so that two operators cannot deadlock, and say whether a message with
-- the same id is pending in their queue. Those that are gone are left out, and so are those that are held.
select d.id, d.queue, d.seq, d.stream, d.position, d.epoch, d.died_at,
       exists (select 1 from holdfast.pending m where m.id = d.id and m.queue = d.queue)
  from holdfast.dead d
 where (d.id, d.queue, d.seq) in (select * from unnest(:ids::uuid[], :queues::text[], :numbers::bigint[]))
   and d.held_at is null
 order by d.id, d.queue, d.seq for update of d
