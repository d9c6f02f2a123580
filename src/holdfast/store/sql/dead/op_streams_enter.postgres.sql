-- Count messages into the order of their streams, rows sorted; say how many are in it now and what halts it.
insert into holdfast.stream as s (queue, name, open)
select u.queue, u.name, u.n from unnest(:queues::text[], :streams::text[], :counts::bigint[]) u (queue, name, n)
 order by u.queue, u.name
    on conflict (queue, name) do update set open = s.open + excluded.open, last = null
returning queue, name, open, halted_by
