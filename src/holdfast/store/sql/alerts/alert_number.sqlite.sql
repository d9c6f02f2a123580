-- The episode is known by the number of the news that it began.
update holdfast_alert set episode = :number where name = :name and subject = :subject
