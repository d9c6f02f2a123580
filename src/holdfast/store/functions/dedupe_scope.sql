-- The scope of a dedupe key: the message's type, or none beside the key itself if that names its own (U+001F, scope,
-- U+001F, key). Like `covers` it becomes part of the statement that calls it.
create or replace function holdfast.dedupe_scope(p_type text, p_key text) returns text
language sql immutable as $$
    select case when pg_catalog.ascii(p_key) operator(pg_catalog.=) 31 then '' else p_type end
$$;
