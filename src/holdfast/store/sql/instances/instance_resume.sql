-- An instance in one of these states may continue.
update holdfast.instance set state = 'running', trouble = null
 where id = :id and state = any (:states::text[]) returning id
