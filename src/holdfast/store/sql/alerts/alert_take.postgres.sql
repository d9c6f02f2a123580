-- The oldest news that is due to be sent, taken for a while: if the process dies, another takes it after that.
-- Earlier news of the same alert is sent first. `+ 0`: open news is found by its index, and not by a scan of all news.
update holdfast.alert_news set tries = tries + 1, try_at = :until::timestamptz
 where number = (
    select n.number from holdfast.alert_news n
     where n.ended_at is null and n.try_at <= (select coalesce(:now::timestamptz, clock_timestamp()))
       and not exists (select 1 from holdfast.alert_news e where e.name = n.name and e.subject = n.subject
                          and e.number < n.number and e.ended_at is null)
     order by n.number + 0::bigint limit 1 for update skip locked)
returning number, coalesce(episode, number), name, subject, what, at, since, value, threshold, text, details, tries, told
