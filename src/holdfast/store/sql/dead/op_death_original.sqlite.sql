-- The body with which a message died is kept with its death; the first one, if it is edited more than once.
update holdfast_death as x
   set body = coalesce(x.body, (select d.body from holdfast_dead d
                                 where d.id = :id and d.queue = :queue and d.seq = :number))
 where x.id = :id and x.queue = :queue and x.seq = :number
   and x.died_at = (select d.died_at from holdfast_dead d where d.id = :id and d.queue = :queue and d.seq = :number)
