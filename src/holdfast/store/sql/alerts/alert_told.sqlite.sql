-- Who has heard the news, and when it is tried again or that it has ended. Nothing if somebody else has it by now.
update holdfast_alert_news set told = :told, error = :error, try_at = :until, ended_at = :ended
 where number = :number and tries = :tries and ended_at is null returning number
