-- A paused or suspended instance goes on. No row: it is neither any more.
update holdfast.instance set state = 'running', trouble = null where id = :id and state in ('paused', 'suspended') returning id
