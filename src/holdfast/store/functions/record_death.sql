-- Every way to die ends with a row of `dead`, so here is the one place that writes deaths down.
create or replace function holdfast.record_death() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into holdfast.death (id, queue, died_at, seq, type, reason, last_reason, fingerprint, worker, error)
    values (new.id, new.queue, new.died_at, new.seq, new.type, new.reason, new.last_reason, new.fingerprint, new.worker,
            new.errors -> -1 ->> 'text')
        on conflict do nothing;
    return null;
end
$$;
