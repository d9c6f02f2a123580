-- Where the messages of an instance go, and whether signals from before its start are still on their way. Nothing is locked.
select i.queue, i.state, holdfast.is_expected(:id) from holdfast.instance_state(:id) i
