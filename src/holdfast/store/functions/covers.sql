-- Whether a subscription's pattern, a type or a prefix with a star, covers a type.
create or replace function holdfast.covers(p_pattern text, p_type text) returns boolean
language sql immutable as $$
    select p_pattern = p_type or (right(p_pattern, 1) = '*' and starts_with(p_type, left(p_pattern, -1)))
$$;
