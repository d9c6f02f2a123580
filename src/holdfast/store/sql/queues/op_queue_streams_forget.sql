-- The streams of a queue in which nothing is pending are forgotten, halted ones too.
delete from holdfast.stream where queue = :queue and open = 0
