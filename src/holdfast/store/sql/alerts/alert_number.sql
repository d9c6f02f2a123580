-- The episode is known by the number of the news that it began.
update holdfast.alert set episode = :number where name = :name and subject = :subject
