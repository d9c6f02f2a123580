-- News, the newest first.
select number, coalesce(episode, number), name, subject, what, at, since, value, threshold, text, details, tries, told,
       try_at, ended_at, error
  from holdfast.alert_news order by number desc limit :limit::int
