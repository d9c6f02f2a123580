-- The dead letter that ended an instance as poison comes back: the instance is open again.
update holdfast.instance
   set state = 'running', result = null, poison = null, trouble = null, ended_at = null
 where id = :id and queue = :queue and poison = :poison::uuid and state = 'failed'
