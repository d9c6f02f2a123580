-- Pending deliveries by queue and state, and since when the oldest that is due waits.
select d.queue, d.state, count(*),
       min(case when d.state not in ('scheduled', 'parked') then coalesce(d.due_at, d.created_at) end)
  from delivery d group by d.queue, d.state
