-- Whether this dead letter ended an instance.
select 1 from holdfast.instance where id = :id and queue = :queue and poison = :poison::uuid
