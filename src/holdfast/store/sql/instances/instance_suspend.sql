-- An operator holds an instance: the turn that runs now is stored, and no other begins.
update holdfast.instance set state = 'suspended', trouble = :why::text where id = :id and state = 'running' returning id
