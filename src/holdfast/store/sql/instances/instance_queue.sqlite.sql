-- Where the messages of an instance go. Nothing is locked.
select queue, state from holdfast_instance where id = :id
