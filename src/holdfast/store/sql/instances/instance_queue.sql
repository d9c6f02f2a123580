-- Where the messages of an instance go. Nothing is locked.
select queue, state from holdfast.instance where id = :id
