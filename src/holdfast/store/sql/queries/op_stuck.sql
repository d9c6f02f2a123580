 where d.seq in (
    -- Messages that were due before a moment and are not leased, found by one scan before anything is joined.
    select m.seq from holdfast.pending m
     where coalesce(m.due_at, m.created_at) <= :before::timestamptz and (:queue::text is null or m.queue = :queue::text)
       and not exists (select 1 from holdfast.lease l where l.seq = m.seq and l.until >= :at::timestamptz)
     order by coalesce(m.due_at, m.created_at), m.seq limit :limit::int)
 order by coalesce(d.due_at, d.created_at), d.seq
