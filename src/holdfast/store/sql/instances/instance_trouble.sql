-- Why the next turn of an instance cannot be stored. It has moved on: nothing is changed.
update holdfast.instance set trouble = :trouble::text
 where id = :id and execution = :execution and turn = :turn and state = 'running'
