-- These schedules are in the code of a process that runs.
update holdfast.schedule set declared_at = :now where name = any (:names::text[]) and origin = 'code'
