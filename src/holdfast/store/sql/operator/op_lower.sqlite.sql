-- Whether a message stands in front of the one that was taken for the first. Never here: writers are serial.
select 1 from holdfast_message
 where queue = :queue and stream = :stream and position < :position limit 1
