-- It took long: the next turn comes later.
update holdfast_turn set next_at = :until where name = :name and next_at < :until
