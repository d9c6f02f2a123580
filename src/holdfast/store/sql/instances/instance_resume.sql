-- An instance that is paused or suspended may go on.
update holdfast.instance set state = 'running', trouble = null
 where id = :id and state in ('paused', 'suspended') returning id
