-- Which dead letters a command is about, with their old places, sizes and the versions that were read. Conditions,
-- order and limit are appended.
select d.id, d.queue, coalesce(d.position, d.seq), d.seq, length(cast(d.body as blob)), d.epoch,
       coalesce(d.stored_at, d.died_at)
  from holdfast_dead d
