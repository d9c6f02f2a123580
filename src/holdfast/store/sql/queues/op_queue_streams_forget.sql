-- The streams of a queue in which nothing is pending are removed, including halted ones.
delete from holdfast.stream where queue = :queue and open = 0
