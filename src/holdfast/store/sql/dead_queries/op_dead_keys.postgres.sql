-- Which dead letters a command is about, with where they stood, how large they are and which version was seen. What is
-- asked for, in which order and how many, is put behind it.
select d.id, d.queue, coalesce(d.position, d.seq), d.seq, octet_length(d.body), d.epoch, coalesce(d.stored_at, d.died_at)
  from holdfast.dead d
