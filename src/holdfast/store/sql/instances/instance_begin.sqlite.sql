-- An instance begins, in the transaction of its start. No row: its id is taken.
insert into holdfast_instance (id, queue, start, mark, attributes, started_at)
values (:id, :queue, :start, :start, :attributes, :now)
    on conflict (id) do nothing
returning 1
