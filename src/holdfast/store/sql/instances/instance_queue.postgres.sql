-- Where the messages of an instance go. Nothing is locked.
select queue, state from holdfast.instance_state(:id)
