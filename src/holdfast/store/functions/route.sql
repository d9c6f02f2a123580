-- The queues that a type goes to now. Like `covers` it becomes part of the statement that calls it.
create or replace function holdfast.route(p_type text) returns setof text
language sql stable as $$
    select distinct s.queue from holdfast.subscription s where holdfast.covers(s.pattern, p_type)
$$;
