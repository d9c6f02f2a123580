-- An operator holds an instance. No row: it does not run any more.
update holdfast.instance set state = 'suspended', trouble = :why::text where id = :id and state = 'running' returning id
