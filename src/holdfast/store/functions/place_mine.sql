-- At commit: the first firing places everything of the transaction, the others find nothing left to do.
create or replace function holdfast.place_mine() returns trigger
language plpgsql as $$
begin
    if exists (select 1 from holdfast.message m where m.seq = new.seq and m.xact is not null) then
        perform holdfast.place(pg_current_xact_id(),
            coalesce(nullif(current_setting('holdfast.now', true), '')::timestamptz, clock_timestamp()));
    end if;
    return null;
end
$$;
