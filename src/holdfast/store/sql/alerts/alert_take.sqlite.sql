-- The oldest news that is due to be sent, taken for a while: if the process dies, another takes it after that.
-- Earlier news of the same alert is sent first.
update holdfast_alert_news set tries = tries + 1, try_at = :until
 where number = (
    select n.number from holdfast_alert_news n where n.ended_at is null and n.try_at <= :now
       and not exists (select 1 from holdfast_alert_news e where e.name = n.name and e.subject = n.subject
                          and e.number < n.number and e.ended_at is null)
     order by n.number limit 1)
returning number, coalesce(episode, number), name, subject, what, at, since, value, threshold, text, details, tries, told
