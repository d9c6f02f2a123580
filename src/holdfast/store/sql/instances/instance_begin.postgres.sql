-- An instance begins, in the transaction of its start. No row: its id is taken.
select 1 where holdfast.begin_instance(:id, :queue, :start::uuid, :attributes::text,
                                       coalesce(:now::timestamptz, clock_timestamp()))
