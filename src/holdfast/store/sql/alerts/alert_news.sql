-- News to send, stored with the decision.
insert into holdfast.alert_news (name, subject, what, episode, at, since, value, threshold, text, details, try_at)
values (:name, :subject, :what, :episode::bigint, :at::timestamptz, :since::timestamptz, :value::float8,
        :threshold::float8, :text, :details, :at::timestamptz) returning number
