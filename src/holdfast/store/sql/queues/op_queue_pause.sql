-- Nothing of this queue is claimed from now on. A queue that is already paused keeps the time and gets the new reason.
insert into holdfast.queue as q (name, created_at, paused_at, paused_why) values (:name, :now, :now, :why)
    on conflict (name) do update set paused_at = coalesce(q.paused_at, excluded.paused_at), paused_why = excluded.paused_why
