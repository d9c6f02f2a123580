-- Wake a sleeping worker of these queues, or of their family (`customers/*`). Only a hint: it may be missed, and polling finds the work.
create or replace function holdfast.nudge(p_queues text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_notify('holdfast', '') from holdfast.worker w
      where w.asleep and (w.queues && p_queues or exists (
                select 1 from unnest(w.queues) f (name) cross join unnest(p_queues) q (name)
                 where right(f.name, 2) = '/*' and starts_with(q.name, left(f.name, -1)))) limit 1;
end
$$;
