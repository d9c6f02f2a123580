-- Record that these schedules are in the code of a running process.
update holdfast.schedule set declared_at = :now where name = any (:names::text[]) and origin = 'code'
