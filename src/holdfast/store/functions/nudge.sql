-- Wake a sleeping worker of these queues. Only a hint: it may be missed, and polling finds the work.
create or replace function holdfast.nudge(p_queues text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_notify('holdfast', '') from holdfast.worker w
      where w.asleep and w.queues && p_queues limit 1;
end
$$;
