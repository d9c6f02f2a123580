-- Episodes that are not over, the oldest first.
select name, subject, version, episode, since, calm_since, value, peak from holdfast.alert order by since, name, subject
