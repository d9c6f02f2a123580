-- What a worker has at its start: its destinations and inboxes.
insert into holdfast.endpoint as e (queue, kind, transport, address, seen_at)
values (:queue, :kind, :transport, :address, :now)
    on conflict (queue) do update set kind = excluded.kind, transport = excluded.transport, address = excluded.address,
        seen_at = excluded.seen_at
