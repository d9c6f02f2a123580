-- A request that has ended stays as it is; one that has timed out is completed when an operator accepts a late result.
create or replace function holdfast.end_request_once() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if old.state = 'failed' and old.timed_out_at is not null and new.state = 'completed' and new.accepted_at is not null then
        return new;
    end if;
    raise exception using errcode = 'integrity_constraint_violation', message = 'holdfast: a request ends once';
end
$$;
