-- A result of a request is kept as it came. A rotation of keys writes its body again, and nothing else.
create or replace function holdfast.keep_result() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if (new.id, new.request, new.received_at, new.standing, new.failed, new.source)
       is distinct from (old.id, old.request, old.received_at, old.standing, old.failed, old.source) then
        raise exception using errcode = 'integrity_constraint_violation',
            message = 'holdfast: a result of a request is never changed';
    end if;
    return new;
end
$$;
