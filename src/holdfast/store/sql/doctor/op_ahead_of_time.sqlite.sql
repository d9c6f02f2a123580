-- The latest time of anything that has happened, by the stored rows.
select max(at) from (
    select max(seen_at) as at from holdfast_worker
     union all
    select created_at from (select created_at from holdfast_message order by seq desc limit 1)
     union all
    select max(ended_at) from holdfast_history)
