update holdfast_worker set asleep = :asleep where id = :worker and asleep <> :asleep
