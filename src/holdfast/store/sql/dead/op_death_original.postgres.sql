-- The body with which a message died is kept with its death; the first one, if it is edited more than once.
update holdfast.death x set body = coalesce(x.body, d.body) from holdfast.dead d
 where d.id = :id::uuid and d.queue = :queue and d.seq = :number::bigint
   and x.id = d.id and x.queue = d.queue and x.died_at = d.died_at and x.seq = d.seq
