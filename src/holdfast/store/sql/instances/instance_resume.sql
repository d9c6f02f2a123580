-- An instance that is held, in one of these states, may go on.
update holdfast.instance set state = 'running', trouble = null
 where id = :id and state = any (:states::text[]) returning id
