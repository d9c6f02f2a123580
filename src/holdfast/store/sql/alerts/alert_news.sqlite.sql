-- What is to be told, stored with the decision.
insert into holdfast_alert_news (name, subject, what, episode, at, since, value, threshold, text, details, try_at)
values (:name, :subject, :what, :episode, :at, :since, :value, :threshold, :text, :details, :at) returning number
