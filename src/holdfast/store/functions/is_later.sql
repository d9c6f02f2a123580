-- Whether a new message waits in `scheduled`: it enters a stream later, or it is due in more than a minute. Like `covers` it
-- becomes part of the statement that calls it.
create or replace function holdfast.is_later(p_queue text, p_at timestamptz, p_now timestamptz) returns boolean
language sql stable as $$
    select coalesce(p_queue operator(pg_catalog.=) 'holdfast/timer'
                    or p_at operator(pg_catalog.>) (p_now operator(pg_catalog.+) interval '1 minute'), false)
$$;
