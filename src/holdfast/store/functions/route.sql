-- The queues that a type goes to now.
create or replace function holdfast.route(p_type text) returns setof text
language sql stable as $$
    select distinct s.queue from holdfast.subscription s
     where s.pattern = p_type
        or (right(s.pattern, 1) = '*' and starts_with(p_type, left(s.pattern, -1)))
$$;
