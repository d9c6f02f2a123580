-- Whether a subscription's pattern, a type or a prefix with a star, covers a type. It becomes part of the statement that
-- calls it, which a setting of its own would prevent; so each call and operator names its schema.
create or replace function holdfast.covers(p_pattern text, p_type text) returns boolean
language sql immutable as $$
    select p_pattern operator(pg_catalog.=) p_type
        or (pg_catalog.right(p_pattern, 1) operator(pg_catalog.=) '*'
            and pg_catalog.starts_with(p_type, pg_catalog.left(p_pattern, -1)))
$$;
