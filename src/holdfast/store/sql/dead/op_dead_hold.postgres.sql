-- An operator holds a dead letter, or lets it go (`held` is false). Its epoch rises, so a stale reader notices the change.
update holdfast.dead
   set held_at = case when :held::boolean then coalesce(:now::timestamptz, clock_timestamp()) end, held_why = :why::text,
       epoch = least(epoch, 2147483646) + 1
 where id = :id::uuid and queue = :queue and seq = :number::bigint returning id
