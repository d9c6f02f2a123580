-- A sleeping worker looks what falls due, if that is so soon that its own look, once a second, would come too late. Told when
-- the transaction commits.
create or replace function holdfast.wake_due(p_at timestamptz, p_now timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_at < p_now + interval '2 seconds' then
        perform pg_notify('holdfast', 'due') from (select 1 from holdfast.worker w where w.asleep limit 1) w;
    end if;
end
$$;
