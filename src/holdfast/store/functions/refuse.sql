-- Spoil the caller's transaction, so that it cannot be committed even by one who did not listen: the lease that it
-- was to settle under is another worker's.
create or replace function holdfast.refuse() returns void
language plpgsql set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception 'holdfast: the lease is another worker''s, so this transaction must be rolled back';
end
$$;
