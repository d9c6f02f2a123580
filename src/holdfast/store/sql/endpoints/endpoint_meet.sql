-- Register the destinations and inboxes of a worker at its start.
insert into holdfast.endpoint as e (queue, kind, transport, address, seen_at)
values (:queue, :kind, :transport, :address, :now)
    on conflict (queue) do update set kind = excluded.kind, transport = excluded.transport, address = excluded.address,
        seen_at = excluded.seen_at
