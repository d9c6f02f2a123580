-- An episode goes on, if it is still the one that was read.
update holdfast_alert set version = version + 1, value = :value, peak = :peak, calm_since = :calm_since
 where name = :name and subject = :subject and version = :version and episode = :number returning version
