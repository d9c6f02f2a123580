-- An instance begins, in the transaction of its start. No row: its id is taken.
insert into holdfast.instance (id, queue, start, mark, attributes, started_at)
values (:id, :queue, :start::uuid, :start::uuid, :attributes::text, :now)
    on conflict (id) do nothing
returning id
