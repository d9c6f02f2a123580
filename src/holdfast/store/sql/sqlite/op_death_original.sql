-- The body with which a message died is kept with its death; the first one, if it is edited more than once.
update holdfast_death
   set body = coalesce(body, (select d.body from holdfast_dead d where d.id = :id and d.queue = :queue))
 where id = :id and queue = :queue
   and died_at = (select d.died_at from holdfast_dead d where d.id = :id and d.queue = :queue)
