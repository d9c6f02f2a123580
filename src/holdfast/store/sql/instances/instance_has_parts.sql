-- Whether parts of the turn behind this one are stored.
select exists (select 1 from holdfast.journal where id = :id and execution = :execution and turn > :turn)
