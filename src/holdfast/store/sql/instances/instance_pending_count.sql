-- How many other messages wait in the stream of an instance.
select count(*) from holdfast.message where queue = :queue and stream = :id and seq <> :seq
