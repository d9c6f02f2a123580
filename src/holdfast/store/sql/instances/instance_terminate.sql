-- An instance ends without its code, if its position has not changed. The turn that runs now is refused by its fence.
update holdfast.instance set state = 'terminated', result = :result, trouble = :why::text, ended_at = :now
 where id = :id and execution = :execution and turn = :turn and ended_at is null returning reply
